#include "engine/options/option_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/testing/states.h"

namespace moeflux {
namespace {

using test::States;

TEST(EngineOptionTable, IsInTheOrderOfItsIds) {
  std::set<std::string> names, flags;
  for (std::size_t i = 0; i < kEngineOptions.size(); ++i) {
    const EngineOption& option = kEngineOptions[i];
    EXPECT_EQ(static_cast<std::size_t>(option.id), i) << option.name;
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_EQ(option.group == OptionGroup::none, *option.flag == '\0') << option.name;
    if (*option.flag != '\0') {
      EXPECT_TRUE(flags.insert(option.flag).second) << option.flag;
      EXPECT_NE(*option.help, '\0') << option.flag;
    }
  }
}

// Help and documents name the same defaults as EngineOptions.
TEST(EngineOptionTable, NamesTheDefaultsOfEngineOptions) {
  const EngineOptions defaults;
  for (const EngineOption& option : kEngineOptions) {
    if (*option.default_value == '\0') continue;
    EngineOptions set;
    set.precision = Precision::exact;
    set.kv_dtype = KvDtype::int8;
    set.prefetches = false;
    if (const auto* text = std::get_if<TextOption>(&option.kind))
      ASSERT_TRUE(text->set(set, option.default_value)) << option.name;
    else
      ASSERT_TRUE(std::get<ChoiceOption>(option.kind).set(set, option.default_value)) << option.name;
    switch (option.id) {
      case OptionId::precision: EXPECT_EQ(set.precision, defaults.precision); break;
      case OptionId::kv_numbers: EXPECT_EQ(set.kv_dtype, defaults.kv_dtype); break;
      case OptionId::prefetch: EXPECT_EQ(set.prefetches, defaults.prefetches); break;
      default: ADD_FAILURE() << option.name << " has a default that is not compared";
    }
    EXPECT_EQ(default_in_help(option), "(default: " + std::string(option.default_value) + ")");
  }
  EXPECT_EQ(default_in_help(engine_option(OptionId::step_rows)), "(default: 512)");
  EXPECT_EQ(default_in_help(engine_option(OptionId::verify_reads)), "");
}

TEST(EngineOptionTable, TakesNumbersAsCPassesThem) {
  EngineOptions options;
  for (const EngineOption& option : kEngineOptions)
    if (!std::holds_alternative<TextOption>(option.kind)) {
      ASSERT_TRUE(set_option(options, option, 0)) << option.name;
    }
  EXPECT_EQ(options.step_rows, kDefaultStepRows);
  EXPECT_EQ(options.kv_budget_bytes, 0u);
  EXPECT_TRUE(options.prefetches);
  EXPECT_FALSE(options.verifies_reads);

  const auto set = [&](OptionId id, std::uint64_t number) {
    return set_option(options, engine_option(id), number);
  };
  ASSERT_TRUE(set(OptionId::threads, 3));
  ASSERT_TRUE(set(OptionId::step_rows, 7));
  ASSERT_TRUE(set(OptionId::context, 99));
  ASSERT_TRUE(set(OptionId::expert_cache_bytes, std::uint64_t{5} << 32));
  ASSERT_TRUE(set(OptionId::kv_budget_bytes, 1));
  ASSERT_TRUE(set(OptionId::usable_memory_bytes, 2));
  ASSERT_TRUE(set(OptionId::verify_reads, 256));
  ASSERT_TRUE(set(OptionId::prefetch, 1));
  EXPECT_EQ(options.threads, 3u);
  EXPECT_EQ(options.step_rows, 7u);
  EXPECT_EQ(options.context, 99u);
  EXPECT_EQ(options.expert_cache_bytes, std::uint64_t{5} << 32);
  EXPECT_EQ(options.kv_budget_bytes, 1u);
  EXPECT_EQ(options.usable_memory_bytes, 2u);
  EXPECT_TRUE(options.verifies_reads);
  EXPECT_FALSE(options.prefetches);
  EXPECT_THAT(set(OptionId::prefetch, 2), States("previous", "off", "found 2"));
}

}  // namespace
}  // namespace moeflux

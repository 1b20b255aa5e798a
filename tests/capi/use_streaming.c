/* use_streaming QWEN DEEPSEEK SPOILED: streaming of experts through moeflux.h.
 *
 * QWEN and DEEPSEEK are packed models; SPOILED is like QWEN, and spoiled here. Compiled as C11 and as C++20.
 * Exits with 0, or with 1 after a line that says what was expected. */

#include <moeflux.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "expectations.h"

enum { kTokens = 40 };

static uint32_t ids[kTokens];

/* As compiled when the structs had no fields of streaming: bytes after the old size must not change. */
static void an_older_caller_gets_what_it_knew(const char* model) {
  mf_engine_options options = engine_options(model);
  options.io = "none of its business";
  options.prefetch = 77;
  options.struct_size = offsetof(mf_engine_options, expert_cache_bytes);
  mf_engine* engine = NULL;
  EXPECT_OK(mf_engine_open(&options, &engine, &why));
  mf_engine_info info;
  memset(&info, 0x55, sizeof info);
  info.struct_size = offsetof(mf_engine_info, expert_slots);
  EXPECT_OK(mf_engine_get_info(engine, &info, &why));
  EXPECT(info.struct_size == offsetof(mf_engine_info, expert_slots) && info.vocabulary == 512);
  EXPECT(info.expert_slots == 0x55555555 && info.expert_records == 0x55555555);
  info.struct_size -= 8;
  EXPECT_STATUS(mf_engine_get_info(engine, &info, &why), MF_INVALID_ARGUMENT, "struct_size");
  mf_engine_close(engine);
}

static void numerics_go_by_name(const char* model) {
  mf_engine_options options = engine_options(model);
  mf_engine* engine = NULL;
  options.precision = "rough";
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT, "precision|exact|fast|'rough'");
  options.precision = "fast";
  options.kv_numbers = "f8";
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT,
                "kv_numbers|f32|bf16|int8|'f8'");
  options.kv_numbers = "int8";
  EXPECT_OK(mf_engine_open(&options, &engine, &why));
  mf_engine_close(engine);
}

/* Layer 3 has experts in both models. */
static const char* expert_file(const char* model, int layer) {
  static char path[4200];
  snprintf(path, sizeof path, "%s/experts/layer_%03d.bin", model, layer);
  return path;
}

/* Options of an engine that holds half of a layer's experts and streams the rest. */
static mf_engine_options streaming_options(const char* model, const char* io, mf_prefetch prefetch) {
  mf_engine_options options = engine_options(model);
  FILE* const file = fopen(expert_file(model, 3), "rb");
  EXPECT(file != NULL && fseek(file, 0, SEEK_END) == 0);
  options.expert_cache_bytes = (uint64_t)ftell(file) / 2;
  fclose(file);
  options.io = io;
  options.prefetch = prefetch;
  return options;
}

static mf_expert_statistics expert_statistics(const mf_engine* engine) {
  mf_expert_statistics statistics;
  memset(&statistics, 0, sizeof statistics);
  statistics.struct_size = sizeof statistics;
  EXPECT_OK(mf_engine_get_expert_statistics(engine, &statistics, &why));
  EXPECT(statistics.struct_size == sizeof statistics && statistics.reserved == 0);
  return statistics;
}

static mf_engine_statistics engine_statistics(const mf_engine* engine) {
  mf_engine_statistics statistics;
  memset(&statistics, 0x55, sizeof statistics);
  statistics.struct_size = sizeof statistics;
  EXPECT_OK(mf_engine_get_statistics(engine, &statistics, &why));
  EXPECT(statistics.struct_size == sizeof statistics && statistics.reserved == 0);
  EXPECT(statistics.kv_used_bytes <= statistics.kv_allocated_bytes);
  return statistics;
}

enum { kMostExperts = 256 };

static uint32_t experts_in_state(const mf_engine* engine, mf_expert_state state) {
  mf_expert_residency experts[kMostExperts];
  size_t count = 0;
  EXPECT_OK(mf_engine_get_residency(engine, experts, kMostExperts, &count, &why));
  uint32_t found = 0;
  for (size_t i = 0; i < count; ++i) found += experts[i].state == state;
  return found;
}

/* A prompt, then single tokens: prefetch guesses from the token before. */
static void run_tokens(mf_engine* engine, float* logits) {
  mf_session* const session = open_session(engine);
  EXPECT_OK(mf_session_extend(session, ids, 10, logits, NULL, &why));
  for (int i = 10; i < kTokens; ++i) EXPECT_OK(mf_session_extend(session, ids + i, 1, logits, NULL, &why));
  mf_session_close(session);
}

static void streaming_options_that_make_no_sense_are_refused(const char* model) {
  mf_engine* engine = NULL;
  mf_engine_options options = engine_options(model);
  options.io = "tape";
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT, "io|'tape'");
  options = engine_options(model);
  options.prefetch = 2;
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT,
                "prefetch|0 (previous)|1 (off)|found 2");
  options = engine_options(model);
  options.expert_cache_bytes = 1;
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT, "too small");
  EXPECT(engine == NULL);

  engine = open_engine(model);
  mf_expert_statistics statistics;
  memset(&statistics, 0, sizeof statistics);
  EXPECT_STATUS(mf_engine_get_expert_statistics(engine, &statistics, &why), MF_INVALID_ARGUMENT,
                "struct_size");
  EXPECT_STATUS(mf_engine_get_expert_statistics(engine, NULL, &why), MF_INVALID_ARGUMENT, "statistics");
  EXPECT_STATUS(mf_engine_get_expert_statistics(NULL, &statistics, &why), MF_INVALID_ARGUMENT, "engine");
  mf_engine_close(engine);
}

static void streamed_experts_give_the_logits_of_held_ones(const char* model) {
  static const char* const ways[] = {NULL, "uring", "pread", "buffered", "sim:3G,1us"};
  float *const held = new_logits(1), *const streamed = new_logits(1);
  mf_engine* engine = open_engine(model);
  run_tokens(engine, held);
  EXPECT(expert_statistics(engine).hits > 0 && expert_statistics(engine).wasted_bytes == 0);
  mf_engine_close(engine);
  for (size_t i = 0; i < 2 * sizeof ways / sizeof *ways; ++i) {
    const mf_prefetch prefetch = i % 2 == 0 ? MF_PREFETCH_PREVIOUS : MF_PREFETCH_OFF;
    mf_engine_options options = streaming_options(model, ways[i / 2], prefetch);
    options.verify_reads = i < 2;
    EXPECT_OK(mf_engine_open(&options, &engine, &why));
    mf_engine_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    EXPECT_OK(mf_engine_get_info(engine, &info, &why));
    EXPECT(info.expert_slots > 0 && info.expert_slots < info.expert_records && strlen(info.drive) > 0);
    EXPECT(expert_statistics(engine).hits + expert_statistics(engine).misses == 0);

    run_tokens(engine, streamed);
    EXPECT(same(held, streamed, 512));
    const mf_expert_statistics found = expert_statistics(engine);
    EXPECT(found.misses > 0 && found.reads >= found.misses && found.demanded_bytes > found.misses);
    EXPECT(found.filled_bytes == 0);
    const uint64_t guesses = found.useful_guesses + found.late_guesses + found.wrong_guesses;
    if (prefetch == MF_PREFETCH_PREVIOUS)
      EXPECT(guesses > 0 && found.speculated_bytes > guesses);
    else
      EXPECT(guesses == 0 && found.speculated_bytes == 0 && found.late_bytes + found.useful_bytes == 0);
    mf_engine_close(engine);
  }
  free(held);
  free(streamed);
}

/* Observers run on the thread of the step, in the middle of it: a function that waited for the step would not
 * return. */
typedef struct seen {
  const mf_engine* engine;
  uint32_t layers, uses;
} seen;

static void read_everything_during_a_step(void* user, uint32_t layer, const uint32_t* chosen,
                                          const float* weights, uint32_t rows, uint32_t experts_per_token) {
  seen* const all = (seen*)user;
  (void)weights;
  EXPECT(rows == 1 && chosen[0] < kMostExperts);
  /* The experts of the layers before. */
  const mf_expert_statistics statistics = expert_statistics(all->engine);
  EXPECT(statistics.hits + statistics.misses + statistics.late == (uint64_t)all->layers * experts_per_token);
  EXPECT(engine_statistics(all->engine).steps == 0 && engine_statistics(all->engine).kv_used_bytes > 0);
  mf_expert_residency experts[kMostExperts];
  size_t count = 0;
  EXPECT_OK(mf_engine_get_residency(all->engine, experts, kMostExperts, &count, &why));
  for (size_t i = 0; i < count; ++i) {
    EXPECT(experts[i].last_use <= all->layers);
    if (experts[i].last_use > 0) EXPECT(experts[i].layer < layer);
    if (experts[i].last_use > 0 && experts[i].last_use == all->layers) all->uses += 1;
  }
  all->layers += 1;
}

static void statistics_and_residency_are_read_at_any_time(const char* model, uint32_t moe_layers) {
  const mf_engine_options options = streaming_options(model, "pread", MF_PREFETCH_OFF);
  mf_engine* engine = NULL;
  EXPECT_OK(mf_engine_open(&options, &engine, &why));
  mf_engine_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  EXPECT_OK(mf_engine_get_info(engine, &info, &why));

  mf_expert_residency experts[kMostExperts];
  size_t count = 0;
  EXPECT_OK(mf_engine_get_residency(engine, experts, kMostExperts, &count, &why));
  EXPECT(count == info.expert_records && count % moe_layers == 0);
  for (size_t i = 0; i < count; ++i) {
    EXPECT(experts[i].expert == i % (count / moe_layers) && experts[i].layer < info.layers);
    EXPECT(experts[i].state == MF_EXPERT_ABSENT && experts[i].prefetched == 0 && experts[i].last_use == 0);
    if (i > 0) EXPECT(experts[i].layer >= experts[i - 1].layer);
  }

  seen all = {NULL, 0, 0};
  all.engine = engine;
  mf_step_options step;
  memset(&step, 0, sizeof step);
  step.struct_size = sizeof step;
  step.route_observer = read_everything_during_a_step;
  step.user = &all;
  mf_session* const session = open_session(engine);
  EXPECT_OK(mf_session_extend(session, ids, 1, NULL, &step, &why));
  EXPECT(all.layers == moe_layers && all.uses == (moe_layers - 1) * info.experts_per_token);

  EXPECT_OK(mf_session_extend(session, ids + 1, 9, NULL, NULL, &why));
  EXPECT(experts_in_state(engine, MF_EXPERT_LOADING) == 0);
  EXPECT(experts_in_state(engine, MF_EXPERT_READY) <= info.expert_slots);
  EXPECT(experts_in_state(engine, MF_EXPERT_READY) > 0 && experts_in_state(engine, MF_EXPERT_ABSENT) > 0);
  const mf_engine_statistics two = engine_statistics(engine);
  EXPECT(two.steps == 2 && two.rows == 10 && two.failed_steps == 0 && two.cancelled_steps == 0);
  EXPECT(two.stepping_ns > 0 && two.kv_used_bytes > 0);

  mf_cancel* const cancel = mf_cancel_new();
  mf_cancel_request(cancel);
  step.route_observer = NULL;
  step.cancel = cancel;
  EXPECT_STATUS(mf_session_extend(session, ids + 10, 1, NULL, &step, &why), MF_CANCELLED, NULL);
  EXPECT(engine_statistics(engine).cancelled_steps == 1 && engine_statistics(engine).steps == 2);
  mf_cancel_free(cancel);
  mf_session_close(session);
  EXPECT(engine_statistics(engine).kv_used_bytes == 0);
  mf_engine_close(engine);
}

static void statistics_and_residency_need_room(const char* model) {
  mf_engine_options options = engine_options(model);
  options.kv_budget_bytes = 1 << 26;
  mf_engine* engine = NULL;
  EXPECT_OK(mf_engine_open(&options, &engine, &why));
  EXPECT(engine_statistics(engine).kv_budget_bytes == 1 << 26);
  mf_engine_statistics statistics;
  memset(&statistics, 0, sizeof statistics);
  EXPECT_STATUS(mf_engine_get_statistics(engine, &statistics, &why), MF_INVALID_ARGUMENT, "struct_size");
  EXPECT_STATUS(mf_engine_get_statistics(engine, NULL, &why), MF_INVALID_ARGUMENT, "statistics");
  EXPECT_STATUS(mf_engine_get_statistics(NULL, &statistics, &why), MF_INVALID_ARGUMENT, "engine");

  mf_expert_residency experts[kMostExperts];
  size_t count = 0;
  EXPECT_STATUS(mf_engine_get_residency(engine, NULL, 0, &count, &why), MF_BUFFER_TOO_SMALL, "experts");
  EXPECT(count > 1 && count <= kMostExperts);
  const size_t needed = count;
  memset(experts, 0x55, sizeof experts);
  EXPECT_STATUS(mf_engine_get_residency(engine, experts, needed - 1, &count, &why), MF_BUFFER_TOO_SMALL,
                NULL);
  EXPECT(count == needed && experts[0].layer == 0x55555555);
  EXPECT_OK(mf_engine_get_residency(engine, experts, needed, &count, &why));
  EXPECT(count == needed && experts[needed - 1].layer < 8);
  EXPECT(needed == kMostExperts || experts[needed].layer == 0x55555555);
  EXPECT_STATUS(mf_engine_get_residency(engine, experts, needed, NULL, &why), MF_INVALID_ARGUMENT, "count");
  EXPECT_STATUS(mf_engine_get_residency(engine, NULL, needed, &count, &why), MF_INVALID_ARGUMENT, "experts");
  EXPECT_STATUS(mf_engine_get_residency(NULL, experts, needed, &count, &why), MF_INVALID_ARGUMENT, "engine");
  EXPECT(count == 0);
  mf_engine_close(engine);
}

/* Writes zeros over a model's experts, or cuts them off. */
static void spoil_experts(const char* model, int cut_off) {
  for (int layer = 0; layer < 8; ++layer) {
    FILE* file = fopen(expert_file(model, layer), "rb+");
    if (file == NULL) continue; /* a dense layer */
    EXPECT(fseek(file, 0, SEEK_END) == 0);
    const long size = ftell(file);
    EXPECT(size > 0 && fseek(file, 0, SEEK_SET) == 0);
    for (long i = 0; i < size && !cut_off; ++i) EXPECT(fputc(0, file) == 0);
    EXPECT(fclose(file) == 0);
    if (!cut_off) continue;
    file = fopen(expert_file(model, layer), "wb");
    EXPECT(file != NULL && fclose(file) == 0);
  }
}

static void an_expert_that_cannot_be_read_is_a_failure_with_a_reason(const char* spoiled) {
  const mf_engine_options options = streaming_options(spoiled, "buffered", MF_PREFETCH_PREVIOUS);
  mf_engine* engine = NULL;
  EXPECT_OK(mf_engine_open(&options, &engine, &why));
  mf_session* const session = open_session(engine);
  EXPECT_OK(mf_session_extend(session, ids, 10, NULL, NULL, &why));
  for (int cut_off = 0; cut_off < 2; ++cut_off) {
    spoil_experts(spoiled, cut_off);
    EXPECT_STATUS(mf_session_extend(session, ids + 10, 20, NULL, NULL, &why), MF_IO_FAILED,
                  cut_off ? "cut off" : "changed since it was opened");
    EXPECT(strstr(why.text, "reading expert") != NULL && strstr(why.text, "/experts/layer_") != NULL);
    EXPECT(mf_session_position(session) == 10);
    EXPECT(engine_statistics(engine).failed_steps == (uint64_t)cut_off + 1);
  }
  mf_session_close(session);
  mf_engine_close(engine);
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_CORRUPT_DATA, "/experts/layer_");
}

int main(int count, char** arguments) {
  if (count != 4) {
    fprintf(stderr, "usage: use_streaming QWEN DEEPSEEK SPOILED\n");
    return 2;
  }
  for (uint32_t i = 0; i < kTokens; ++i) ids[i] = (i * 37 + 11) % 509;
  an_older_caller_gets_what_it_knew(arguments[1]);
  numerics_go_by_name(arguments[1]);
  streaming_options_that_make_no_sense_are_refused(arguments[1]);
  streamed_experts_give_the_logits_of_held_ones(arguments[1]);
  streamed_experts_give_the_logits_of_held_ones(arguments[2]);
  statistics_and_residency_are_read_at_any_time(arguments[1], 8);
  statistics_and_residency_are_read_at_any_time(arguments[2], 3);
  statistics_and_residency_need_room(arguments[1]);
  statistics_and_residency_need_room(arguments[2]);
  an_expert_that_cannot_be_read_is_a_failure_with_a_reason(arguments[3]);
  printf("experts were streamed, and failures told\n");
  return 0;
}

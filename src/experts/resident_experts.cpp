#include "experts/resident_experts.h"

#include <fmt/format.h>

#include <numeric>

#include "base/check.h"
#include "experts/record_view.h"
#include "io/parallel_read.h"

namespace moeflux {

std::uint64_t ResidentExperts::bytes_of(const PackedModel& model) {
  std::uint64_t bytes = 0;
  for (const ExpertFile& file : model.manifest().experts) bytes += file.bytes;
  return bytes;
}

Result<std::unique_ptr<ResidentExperts>> ResidentExperts::open(const PackedModel& model) {
  const std::size_t layers = model.config().layers.size();
  std::vector<std::uint32_t> first_record(layers + 1);
  for (const ExpertFile& file : model.manifest().experts)
    first_record[file.layer.index() + 1] = static_cast<std::uint32_t>(file.records.size());
  std::partial_sum(first_record.begin(), first_record.end(), first_record.begin());
  std::unique_ptr<ResidentExperts> source(new ResidentExperts(first_record));
  source->layers_.resize(layers);
  for (const ExpertFile& file : model.manifest().experts) {
    Layer& layer = source->layers_[file.layer.index()];
    layer.first_record = first_record[file.layer.index()];
    MF_TRY(layer.memory, HugeBuffer::create(file.bytes));
    MF_TRY_STATUS(read_in_parallel(model.expert_file(file.layer), 0, layer.memory.bytes()));
    layer.experts.reserve(file.records.size());
    for (const ExpertRecord& record : file.records)
      layer.experts.push_back(
          view_of(model.expert_format(record),
                  std::as_const(layer.memory).bytes().subspan(record.offset, record.bytes)));
  }
  return source;
}

void ResidentExperts::start(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder) {
  MF_REQUIRE(layer_ == nullptr, "one Fetch at a time");
  layer_ = &layers_[layer.index()];
  wanted_ = wanted;
  next_ = 0;
}

Result<std::optional<ExpertSource::ReadyExpert>> ResidentExperts::next_ready() {
  if (next_ == wanted_.size()) return std::optional<ReadyExpert>();
  const std::uint32_t expert = wanted_[next_++];
  residency_.set_last_use(layer_->first_record + expert, counters().fetches);
  return std::optional<ReadyExpert>({ExpertId(expert), layer_->experts[expert], expert});
}

void ResidentExperts::stop() { layer_ = nullptr; }

void ResidentExperts::release(std::uint32_t) {}  // nothing is evicted

}  // namespace moeflux

#include "pack/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>

#include "base/thread_annotations.h"
#include "base/thread_pool.h"
#include "model/config_json.h"
#include "model/manifest.h"
#include "pack/source_digest.h"

namespace moeflux {
namespace {

// Digests the tensors and experts of a plan, one after another, by several threads.
class Digesting {
 public:
  Digesting(const SourceModel& source, const PackPlan& plan,
            FunctionRef<Status(std::uint64_t, std::uint64_t)> progress)
      : source_(source), progress_(progress) {
    digests_.tensors.resize(plan.tensors.size());
    digests_.experts.resize(plan.expert_files.size());
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      items_.push_back({&plan.tensors[i].source->matrix, {LayerId(0), ExpertId(0)}, &digests_.tensors[i]});
      total_ += plan.tensors[i].source->matrix.total_bytes();
    }
    for (std::size_t f = 0; f < plan.expert_files.size(); ++f) {
      const ExpertFilePlan& file = plan.expert_files[f];
      digests_.experts[f].resize(file.formats.size());
      for (std::uint32_t e = 0; e < file.formats.size(); ++e) {
        items_.push_back({nullptr, {file.layer, ExpertId(e)}, &digests_.experts[f][e]});
        total_ += source.experts(file.layer)->expert(ExpertId(e)).total_bytes();
      }
    }
  }
  Digesting(const Digesting&) = delete;
  Digesting& operator=(const Digesting&) = delete;

  Result<PlanDigests> run(unsigned jobs) {
    ThreadPool(std::max(1u, jobs)).run([this](unsigned) { work(); });
    Lock lock(mutex_);
    if (failure_) return *failure_;
    return digests_;
  }

 private:
  struct Item {
    const SourceMatrix* matrix;  // null: the expert `key` instead
    ExpertKey key;
    Digest* digest;
  };

  void work() {
    for (std::size_t index = next_++; index < items_.size(); index = next_++) {
      const Item& item = items_[index];
      std::uint64_t bytes = 0;
      const Result<Digest> digest = read(item, bytes);
      Lock lock(mutex_);
      if (failure_) return;
      if (!digest) {
        failure_ = digest.error();
        return;
      }
      *item.digest = *digest;
      done_ += bytes;
      if (Status goes_on = progress_(done_, total_); !goes_on) {
        failure_ = std::move(goes_on).error();
        return;
      }
    }
  }

  Result<Digest> read(const Item& item, std::uint64_t& bytes) const {
    if (item.matrix != nullptr) {
      bytes = item.matrix->total_bytes();
      return read_digest(source_.catalog(), *item.matrix);
    }
    const ExpertMatrices expert = source_.experts(item.key.layer)->expert(item.key.expert);
    bytes = expert.total_bytes();
    return read_digest(source_.catalog(), expert);
  }

  const SourceModel& source_;
  std::vector<Item> items_;
  std::uint64_t total_ = 0;
  PlanDigests digests_;

  std::atomic<std::size_t> next_ = 0;
  Mutex mutex_;
  FunctionRef<Status(std::uint64_t, std::uint64_t)> progress_ MF_GUARDED_BY(mutex_);
  std::uint64_t done_ MF_GUARDED_BY(mutex_) = 0;
  std::optional<Error> failure_ MF_GUARDED_BY(mutex_);
};

}  // namespace

Digest fingerprint_of(const SourceModel& source, const PackPlan& plan, const PlanDigests& digests) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorPlan& tensor = plan.tensors[i];
    lines.push_back(fmt::format("{} {}x{} {} {} {}", tensor.source->name, tensor.format.rows,
                                tensor.format.cols, describe(tensor.source->matrix.encoding),
                                describe(tensor.format.encoding), hex_of(digests.tensors[i])));
  }
  for (std::size_t f = 0; f < plan.expert_files.size(); ++f) {
    const ExpertFilePlan& file = plan.expert_files[f];
    for (std::uint32_t e = 0; e < file.formats.size(); ++e) {
      const ExpertFormat& format = plan.expert_formats[file.formats[e]];
      lines.push_back(fmt::format("{} {}x{} {} {} {} {}", expert_matrix_name({file.layer, ExpertId(e)}, ""),
                                  format.gate.rows, format.gate.cols, describe(format.gate.encoding),
                                  describe(format.up.encoding), describe(format.down.encoding),
                                  hex_of(digests.experts[f][e])));
    }
  }
  lines.push_back(fmt::format("config {}", config_to_json(source.config()).dump()));
  std::sort(lines.begin(), lines.end());
  DigestStream digest;
  for (const std::string& line : lines) {
    digest.add(line);
    digest.add("\n");
  }
  return digest.value();
}

Result<Digest> read_fingerprint(const SourceModel& source, const PackPlan& plan, unsigned jobs,
                                FunctionRef<Status(std::uint64_t, std::uint64_t)> progress) {
  MF_TRY(const PlanDigests digests, Digesting(source, plan, progress).run(jobs));
  return fingerprint_of(source, plan, digests);
}

}  // namespace moeflux

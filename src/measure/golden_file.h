#pragma once
// A Golden on disk: a safetensors file with the outputs of another implementation.
//
//   input_ids [T]                       the prompt
//   logits [T, V]                       after each of its tokens, or
//   logit_positions [R], logits [R, V]  after some of them
//   greedy_ids [G], greedy_logits [G, V]     both optional
//   hidden_states [L + 1, T, H]              for comparing layers (Golden::hidden_states has the meaning)
//   layer.N.router.1, layer.N.router.2 [T, K]     optional: weights and ids of the chosen experts
//
// Ids are I32 or I64, everything else is F32. Other tensors are ignored. Any thread.

#include <string>

#include "base/result.h"
#include "io/file_system.h"
#include "measure/eval.h"
#include "model/config.h"

namespace moeflux {

// Reads the golden at `path` and checks it against itself and the model. Hidden states and routers are read
// only if `with_layers`; a file without hidden_states is then invalid_argument. A tensor that does not fit is
// corrupt_data, and the message states file, tensor, expected and found.
Result<Golden> read_golden(FileSystem& files, const std::string& path, const ModelConfig& config,
                           bool with_layers);

}  // namespace moeflux

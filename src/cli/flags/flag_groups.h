#pragma once
// The headings under which --help lists flags.

namespace moeflux::cli {

inline constexpr const char* kWhat = "What to run";
inline constexpr const char* kHow = "How to run it";
inline constexpr const char* kSampling =
    "How tokens are chosen (default: as the model's generation_config.json says)";
inline constexpr const char* kReply = "The reply";
inline constexpr const char* kStreaming = "Streaming experts from disk";

}  // namespace moeflux::cli

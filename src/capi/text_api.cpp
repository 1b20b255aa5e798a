#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "capi/boundary.h"
#include "capi/handles.h"
#include "io/posix_file_system.h"

namespace moeflux {
namespace {

// Copies `found` to `out` if it fits. Sets `needed` to its size in any case.
template <class T, class Found>
Status hand_over(const Found& found, std::string_view what, T* out, std::size_t room, std::size_t* needed) {
  *needed = found.size();
  if (found.size() > room)
    return Error(ErrorCode::buffer_too_small,
                 fmt::format("there is room for {} {}, and there are {}", room, what, found.size()));
  if (!found.empty()) std::memcpy(out, found.data(), found.size() * sizeof(T));
  return {};
}

Status expect_buffers(const void* in, std::size_t in_size, const void* out, std::size_t room,
                      const void* needed) {
  if (in == nullptr && in_size != 0) return null_argument("the input");
  if (out == nullptr && room != 0) return null_argument("the buffer");
  if (needed == nullptr) return null_argument("the count");
  return {};
}

}  // namespace
}  // namespace moeflux

using namespace moeflux;

mf_status mf_text_open(const char* directory, mf_text** text, mf_message* why) {
  return at_boundary(why, [&]() -> Status {
    if (text == nullptr) return null_argument("text");
    *text = nullptr;
    if (directory == nullptr) return null_argument("directory");
    PosixFileSystem files;
    MF_TRY(ModelText opened, ModelText::open(files, directory));
    *text = new mf_text(std::move(opened));
    return {};
  });
}

void mf_text_close(mf_text* text) { delete text; }

mf_status mf_text_tokenize(const mf_text* text, const char* words, size_t bytes, int with_special,
                           uint32_t* tokens, size_t room, size_t* count, mf_message* why) {
  return at_boundary(why, [&]() -> Status {
    if (text == nullptr) return null_argument("text");
    MF_TRY_STATUS(expect_buffers(words, bytes, tokens, room, count));
    std::vector<TokenId> found;
    MF_TRY_STATUS(text->text.tokenizer().encode(
        std::string_view(words, bytes), with_special != 0 ? AddedTokens::all : AddedTokens::ordinary, found));
    std::vector<std::uint32_t> ids;
    ids.reserve(found.size());
    for (const TokenId token : found) ids.push_back(token.index());
    return hand_over(ids, "tokens", tokens, room, count);
  });
}

mf_status mf_text_detokenize(const mf_text* text, const uint32_t* tokens, size_t count, int skip_special,
                             char* words, size_t room, size_t* bytes, mf_message* why) {
  return at_boundary(why, [&]() -> Status {
    if (text == nullptr) return null_argument("text");
    MF_TRY_STATUS(expect_buffers(tokens, count, words, room, bytes));
    std::vector<TokenId> ids;
    ids.reserve(count);
    for (std::size_t i = 0; i < count; ++i) ids.emplace_back(tokens[i]);
    return hand_over(text->text.tokenizer().decode(ids, skip_special != 0), "bytes", words, room, bytes);
  });
}

// multipart/form-data (RFC 7578, RFC 2046 section 5.1) read as it comes: part by part, with constant memory. For what a client
// uploads; names and sizes of heads are bounded, and what is not well-formed is an error for ever.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::agent {

struct PartEvent {
  enum class What { begin, data, end } what = What::data;
  std::string name, filename;  // of begin; a filename keeps its slashes
  std::string data;
};

class MultipartReader {
 public:
  static constexpr std::size_t kMostHead = 16 << 10;

  explicit MultipartReader(std::string_view boundary);
  Result<std::vector<PartEvent>> feed(std::string_view bytes);
  bool done() const { return state_ == State::done; }  // the last boundary was there

 private:
  enum class State { preamble, after_boundary, head, body, done, failed } state_ = State::preamble;
  tl::unexpected<Error> refuse(std::string why);
  Result<bool> step(std::vector<PartEvent>& out);  // false: needs more bytes
  Result<bool> read_head(std::vector<PartEvent>& out);

  std::string delimiter_;  // CRLF, two dashes, the boundary
  std::string pending_;
};

// The boundary out of a Content-Type of multipart/form-data; nothing when it is another type or has none.
std::optional<std::string> multipart_boundary(std::string_view content_type);

}  // namespace space::agent

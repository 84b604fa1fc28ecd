// Bodies that an upstream compressed although it was asked not to, made readable again (zlib).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace space::egress {

class Inflater {
 public:
  // `deflate`: that coding, with or without its zlib header, as servers disagree; else gzip.
  static Result<std::unique_ptr<Inflater>> make(bool deflate);
  ~Inflater();
  // At most 32 MiB for one piece; more, nonsense, or an end before its time is upstream_encoding.
  Result<std::string> push(std::string_view bytes, bool last);

 private:
  struct State;
  explicit Inflater(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace space::egress

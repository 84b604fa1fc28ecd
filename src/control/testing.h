// For tests of this folder and of api: runs one coroutine on a loop to its end.
#pragma once

#include <optional>

#include "base/async.h"

namespace space::control::testing {

template <class T>
Result<T> run(asio::io_context& loop, Task<T> task) {
  std::optional<Result<T>> out;
  asio::co_spawn(loop, std::move(task), [&](std::exception_ptr error, Result<T> result) {
    if (error) std::rethrow_exception(error);
    out = std::move(result);
  });
  loop.restart();
  while (!out && loop.run_one() > 0) {
  }
  if (!out) return fail(ErrorKind::internal, "never_finished", "the loop ran dry", "");
  return std::move(*out);
}

}  // namespace space::control::testing

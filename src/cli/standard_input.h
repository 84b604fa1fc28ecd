// Our standard input for a program in a sandbox: every byte once and in order, as fast as the program takes them.
//
// One request a piece, answered when the program has taken the bytes, so that a slow program slows us. Each has an Idempotency-Key, for
// which the server writes to its disk twice: while a piece is under way the next one is gathered, and pieces grow for a program that takes
// them quickly. For a slow one they stay small: what a server has taken up whole is not sent again when the connection breaks.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>

#include "base/fd.h"
#include "cli/client.h"

namespace space::cli {

class StandardInput : public std::enable_shared_from_this<StandardInput> {
 public:
  // `target`: the session's …/stdin. `fd` is not owned. Belongs to the context's loop; the context must outlive it.
  StandardInput(Context& context, std::string target, int fd = STDIN_FILENO);
  void start();  // two coroutines that nobody waits for: they end with the input, with `stop`, or when the program takes no more
  void stop();   // nothing is read from now on
  bool over() const { return over_; }

 private:
  asio::awaitable<void> gather();
  asio::awaitable<void> send();
  Result<std::string> read() const;  // blocks; "" at the end, or after `stop`
  void tell(const Error& error) const;

  Context& context_;
  std::string target_;
  int fd_;
  Fd wake_;        // an eventfd, for the thread that waits for input
  Signal change_;  // of everything below
  std::string waiting_;
  std::size_t most_;
  bool ended_ = false;
  bool over_ = false;
};

// Is it a pipe, a file or a socket, which somebody handed to us on purpose?
bool stdin_is_piped();

}  // namespace space::cli

// What a VMM says on standard error: read as it comes so that the VMM never blocks, the tail kept for error messages, a bounded
// number of lines logged. Hostile text.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>
#include <string>

#include "base/async.h"
#include "base/fd.h"

namespace space::vmm {

class VmmLog {
 public:
  // `pipe`: the reading end, non-blocking. Reads on `executor` until the writers are gone or close().
  static std::shared_ptr<VmmLog> follow(asio::any_io_executor executor, std::string vm, Fd pipe);
  explicit VmmLog(asio::any_io_executor executor, std::string vm) : pipe_(std::move(executor)), vm_(std::move(vm)) {}
  const std::string& tail() const { return tail_; }  // the last 4 kB
  void close();

 private:
  static asio::awaitable<void> read(std::shared_ptr<VmmLog> self);
  void take(std::string_view bytes);

  asio::posix::stream_descriptor pipe_;
  std::string vm_, tail_, line_;
  std::size_t logged_ = 0;
};

}  // namespace space::vmm

#include "vmm/vmm_log.h"

#include <boost/asio/as_tuple.hpp>

#include "base/log.h"
#include "vmm/qmp_message.h"

namespace space::vmm {
namespace {
constexpr std::size_t kTail = 4 << 10;
constexpr std::size_t kMaxLine = 500;
constexpr std::size_t kMaxLogged = 40;  // lines of one VM
}  // namespace

std::shared_ptr<VmmLog> VmmLog::follow(asio::any_io_executor executor, std::string vm, Fd pipe) {
  auto log = std::make_shared<VmmLog>(executor, std::move(vm));
  boost::system::error_code error;
  log->pipe_.assign(pipe.get(), error);
  if (error) return log;
  (void)pipe.release();
  spawn(executor, read(log));
  return log;
}

void VmmLog::close() {
  boost::system::error_code ignored;
  pipe_.close(ignored);
}

asio::awaitable<void> VmmLog::read(std::shared_ptr<VmmLog> self) {
  std::array<char, 4096> buffer;
  while (self->pipe_.is_open()) {
    auto [error, n] = co_await self->pipe_.async_read_some(asio::buffer(buffer), kAsTuple);
    if (error) break;
    self->take({buffer.data(), n});
    // A VMM that floods us costs a little of this loop, never much of it.
    if (self->logged_ >= kMaxLogged) co_await sleep_for(std::chrono::milliseconds(50));
  }
  self->close();
}

void VmmLog::take(std::string_view bytes) {
  tail_ += bytes;
  if (tail_.size() > kTail) tail_.erase(0, tail_.size() - kTail);
  for (const char c : bytes) {
    if (c != '\n' && line_.size() < kMaxLine) line_ += c;
    if (c != '\n' || line_.empty()) continue;
    if (++logged_ <= kMaxLogged) log::warn("vmm.stderr", {{"vm", vm_}, {"line", printable(line_, kMaxLine)}});
    if (logged_ == kMaxLogged) log::warn("vmm.stderr_silenced", {{"vm", vm_}});
    line_.clear();
  }
}

}  // namespace space::vmm

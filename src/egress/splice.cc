#include "egress/splice.h"

#include <array>
#include <boost/asio/experimental/awaitable_operators.hpp>

namespace space::egress {
namespace {

constexpr std::size_t kPiece = 16 << 10;

asio::awaitable<void> pump(Flow& flow, http::Stream& from, http::Stream& to, bool up) {
  const auto buffer = std::make_unique_for_overwrite<std::array<char, kPiece>>();
  for (;;) {
    const std::array room{asio::mutable_buffer(buffer->data(), buffer->size())};
    const http::Transfer got = co_await from.read_some(room);
    if (got.error) {
      if (got.error == asio::error::eof) co_await to.close_write();
      else to.reset();  // what was cut on one side must not look like a tidy end on the other
      co_return;
    }
    bool on = false;
    if (up) on = co_await flow.passed_up(got.bytes);
    else on = co_await flow.passed_down(got.bytes);
    if (!on) co_return;
    const std::array part{asio::const_buffer(buffer->data(), got.bytes)};
    const http::Transfer sent = co_await to.write_all(part);
    if (sent.error) {
      from.reset();
      co_return;
    }
  }
}

}  // namespace

asio::awaitable<void> splice(Flow& flow, http::Stream& guest, http::Stream& upstream, std::string first) {
  using namespace asio::experimental::awaitable_operators;
  if (!first.empty()) {
    const std::array part{asio::const_buffer(first.data(), first.size())};
    const http::Transfer sent = co_await upstream.write_all(part);
    if (sent.error) {
      guest.reset();
      co_return;
    }
    const bool on = co_await flow.passed_up(first.size());
    if (!on) co_return;
  }
  co_await (pump(flow, guest, upstream, true) && pump(flow, upstream, guest, false));
}

}  // namespace space::egress

#include "egress/splice.h"

#include <array>
#include <boost/asio/experimental/awaitable_operators.hpp>

#include "egress/credentials.h"
#include "http/watchdog.h"

namespace space::egress {
namespace {

constexpr std::size_t kPiece = 16 << 10;
constexpr std::chrono::seconds kLookTime{10};  // from the guest's first byte until it is clear what it speaks

asio::awaitable<bool> write(http::Stream& to, std::string_view bytes) {
  const std::array part{asio::const_buffer(bytes.data(), bytes.size())};
  const http::Transfer sent = co_await to.write_all(part);
  co_return !sent.error;
}

// Reads the guest's first bytes until it is clear whether they may pass. False: they may not, or the guest left.
asio::awaitable<bool> look_at_first(Flow& flow, http::Stream& guest, SpliceOptions& options) {
  using Look = SpliceOptions::Look;
  http::Watchdog watch(flow.sandbox().services().executor, [&flow] { flow.cut("the guest's first bytes did not come in time"); });
  Look look = options.first_up.empty() ? Look::hold : options.look(options.first_up);
  const auto buffer = std::make_unique_for_overwrite<std::array<char, 4096>>();
  while (look == Look::hold) {
    const std::array room{asio::mutable_buffer(buffer->data(), buffer->size())};
    const http::Transfer got = co_await guest.read_some(room);
    if (got.error) co_return false;
    if (options.first_up.empty()) watch.set(kLookTime);
    const std::string_view piece(buffer->data(), got.bytes);
    options.first_up.append(piece);
    look = options.look(piece);
  }
  co_return look == Look::pass;
}

asio::awaitable<void> pump_up(Flow& flow, http::Stream& guest, http::Stream& upstream, SpliceOptions& options) {
  if (options.look) {
    const bool may_pass = co_await look_at_first(flow, guest, options);
    if (!may_pass) {
      flow.cut(flow.is_cut() ? flow.why_cut() : "the guest closed");
      co_return;
    }
  }
  if (!options.first_up.empty()) {
    const bool on = co_await flow.passed_up(options.first_up.size());
    if (!on) co_return;
    const bool sent = co_await write(upstream, options.first_up);
    if (!sent) {
      guest.reset();
      co_return;
    }
    options.first_up = std::string();
  }
  const auto buffer = std::make_unique_for_overwrite<std::array<char, kPiece>>();
  for (;;) {
    const std::array room{asio::mutable_buffer(buffer->data(), buffer->size())};
    const http::Transfer got = co_await guest.read_some(room);
    if (got.error) {
      if (got.error == asio::error::eof) co_await upstream.close_write();
      else upstream.reset();  // what was cut on one side must not look like a tidy end on the other
      co_return;
    }
    const bool on = co_await flow.passed_up(got.bytes);
    if (!on) co_return;
    const bool sent = co_await write(upstream, {buffer->data(), got.bytes});
    if (!sent) {
      guest.reset();
      co_return;
    }
  }
}

asio::awaitable<void> pump_down(Flow& flow, http::Stream& guest, http::Stream& upstream, SpliceOptions& options) {
  const auto buffer = std::make_unique_for_overwrite<std::array<char, kPiece>>();
  std::string first = std::move(options.first_down), clean;
  for (;;) {
    std::string_view bytes = first;
    if (first.empty()) {
      const std::array room{asio::mutable_buffer(buffer->data(), buffer->size())};
      const http::Transfer got = co_await upstream.read_some(room);
      if (got.error) {
        if (options.scrubber) {
          clean = options.scrubber->finish();
          (void)co_await write(guest, clean);
        }
        if (got.error == asio::error::eof) co_await guest.close_write();
        else guest.reset();
        co_return;
      }
      bytes = {buffer->data(), got.bytes};
    }
    const bool on = co_await flow.passed_down(bytes.size());
    if (!on) co_return;
    if (options.scrubber) {
      clean = options.scrubber->push(bytes);
      bytes = clean;
    }
    const bool sent = co_await write(guest, bytes);
    if (!sent) {
      upstream.reset();
      co_return;
    }
    first = std::string();
  }
}

}  // namespace

asio::awaitable<void> splice(Flow& flow, http::Stream& guest, http::Stream& upstream, SpliceOptions options) {
  using namespace asio::experimental::awaitable_operators;
  co_await (pump_up(flow, guest, upstream, options) && pump_down(flow, guest, upstream, options));
}

}  // namespace space::egress

#include "egress/splice.h"

#include <array>
#include <boost/asio/experimental/awaitable_operators.hpp>

#include "egress/credentials.h"
#include "egress/quick_io.h"
#include "http/watchdog.h"

namespace space::egress {
namespace {

constexpr int kTurns = 16;                     // pieces in a row before other connections have their turn
constexpr std::chrono::seconds kLookTime{10};  // from the guest's first byte until it is clear what it speaks

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

// One direction. A connection that is silent holds no buffer: what is there goes through the worker's own, and only what the other
// side does not take at once is kept.
asio::awaitable<void> pump(Flow& flow, http::Stream& from, http::Stream& to, bool up, std::string first, Scrubber* scrubber) {
  const auto scratch = flow.sandbox().services().scratch;
  std::string clean;
  for (int turn = 1;; ++turn) {
    // Between two sides that are both quick there is never anything to wait for.
    if (turn % kTurns == 0) co_await asio::post(flow.sandbox().services().executor, asio::use_awaitable);
    std::string_view bytes = first;
    if (first.empty()) {
      const http::Transfer got = read_now(from, *scratch);
      if (got.error == asio::error::would_block) {
        const auto failed = co_await wait_for_data(from);
        if (failed == asio::error::operation_aborted) co_return;
        continue;  // an error is found by reading
      }
      if (got.error) {
        if (scrubber) {
          clean = scrubber->finish();
          (void)co_await write_from_shared(to, clean);
        }
        if (got.error == asio::error::eof)
          co_await to.close_write();
        else
          to.reset();  // what was cut on one side must not look like a tidy end on the other
        co_return;
      }
      bytes = {scratch->data(), got.bytes};
    }
    const auto wait = up ? flow.count_up(bytes.size()) : flow.count_down(bytes.size());
    if (!wait) co_return;
    if (scrubber) {
      clean = scrubber->push(bytes);
      bytes = clean;
    }
    const auto unsent = co_await write_from_shared(to, bytes);
    if (unsent) {
      from.reset();
      co_return;
    }
    first = std::string();
    if (wait->count() > 0) co_await sleep_for(*wait);
    if (flow.is_cut()) co_return;
  }
}

asio::awaitable<void> pump_up(Flow& flow, http::Stream& guest, http::Stream& upstream, SpliceOptions& options) {
  if (options.look) {
    const bool may_pass = co_await look_at_first(flow, guest, options);
    if (!may_pass) {
      flow.cut(flow.is_cut() ? flow.why_cut() : "the guest closed");
      co_return;
    }
    options.look = nullptr;  // with all that it has read
  }
  std::string first = std::exchange(options.first_up, {});
  co_await pump(flow, guest, upstream, true, std::move(first), nullptr);
}

}  // namespace

asio::awaitable<void> splice(Flow& flow, http::Stream& guest, http::Stream& upstream, SpliceOptions options) {
  using namespace asio::experimental::awaitable_operators;
  std::string down = std::exchange(options.first_down, {});
  co_await (pump_up(flow, guest, upstream, options) && pump(flow, upstream, guest, false, std::move(down), options.scrubber));
}

}  // namespace space::egress

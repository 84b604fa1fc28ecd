#include "agent/window.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <limits>

namespace space::agent {
namespace {

using wire::FrameType;

constexpr std::size_t kKeeping = 64;              // bytes of memory that a kept frame costs beside its own
constexpr std::size_t kLongestJoined = 16 << 10;  // small outputs that nobody has read yet become one frame up to this size
constexpr std::size_t kFrameHead = 13;

bool is_output(FrameType type) {
  return type == FrameType::stdout_bytes || type == FrameType::stderr_bytes || type == FrameType::pty_bytes;
}

}  // namespace

OutputWindow::Reader::Reader(OutputWindow& window, asio::any_io_executor executor, std::uint64_t after)
    : news(std::move(executor)), window_(window), position_(after) {
  window_.readers_.push_back(this);
}

OutputWindow::Reader::~Reader() {
  std::erase(window_.readers_, this);
  window_.room_.notify_all();
}

bool OutputWindow::Reader::lost() const { return !holds_ && window_.dropped_last_ != dropped_before_ && position_ < window_.dropped_last_; }

bool OutputWindow::Reader::take(std::string& out, std::size_t most) {
  if (lost()) return false;
  if (!holds_) {
    holds_ = true;
    since_.reset();
  }
  const std::uint64_t before = position_;
  // Frames of one deque have sequences without gaps, so the place of the next one is known.
  const auto from = [&](const std::deque<Stored>& frames) {
    if (frames.empty() || position_ > frames.back().sequence) return;
    const std::uint64_t front = frames.front().sequence;
    for (std::size_t i = position_ < front ? 0 : position_ + 1 - front; i < frames.size() && out.size() < most; ++i) {
      out += frames[i].encoded;
      position_ = frames[i].sequence;
    }
  };
  from(window_.head_);
  const std::uint64_t head_last = window_.head_.empty() ? 0 : window_.head_.back().sequence;
  if (position_ >= head_last && position_ < window_.dropped_last_ && out.size() < most) {
    out += wire::encode_frame({FrameType::dropped, window_.dropped_last_, wire::encode_u64(window_.dropped_bytes_)});
    position_ = window_.dropped_last_;
  }
  if (position_ >= std::max(head_last, window_.dropped_last_)) from(window_.tail_);
  window_.handed_ = std::max(window_.handed_, position_);
  if (position_ != before) window_.room_.notify_all();
  return position_ != before;
}

std::size_t OutputWindow::cost_of(const Stored& frame) { return frame.encoded.size() + kKeeping; }

void OutputWindow::append(FrameType type, std::string_view payload) {
  if (is_output(type)) {
    // The head ends exactly at its limit, wherever the reads were cut.
    if (dropped_last_ == 0 && tail_.empty() && head_output_ < limits_.head && payload.size() > limits_.head - head_output_) {
      const std::size_t fits = limits_.head - head_output_;
      append(type, payload.substr(0, fits));
      payload.remove_prefix(fits);
    }
    if (payload.empty()) return;
    if (!extend_last(type, payload)) store(type, payload);
  } else {
    store(type, payload);
  }
  shrink();
  wake_readers();
}

void OutputWindow::store(FrameType type, std::string_view payload) {
  Stored frame{++last_, type, wire::encode_frame({type, last_, std::string(payload)})};
  const bool to_head = tail_.empty() && dropped_last_ == 0 && (!is_output(type) || head_output_ < limits_.head);
  if (to_head) {
    head_cost_ += cost_of(frame);
    if (is_output(type)) head_output_ += payload.size();
    head_.push_back(std::move(frame));
  } else {
    tail_cost_ += cost_of(frame);
    tail_.push_back(std::move(frame));
  }
}

bool OutputWindow::extend_last(FrameType type, std::string_view payload) {
  const bool in_tail = !tail_.empty();
  auto& frames = in_tail ? tail_ : head_;
  if (frames.empty()) return false;
  Stored& frame = frames.back();
  if (frame.sequence <= handed_ || frame.type != type || frame.encoded.size() + payload.size() > kLongestJoined) return false;
  if (!in_tail && (dropped_last_ != 0 || head_output_ >= limits_.head)) return false;
  frame.encoded.append(payload);
  const auto length = static_cast<std::uint32_t>(frame.encoded.size() - 4);
  std::memcpy(frame.encoded.data(), &length, sizeof length);
  (in_tail ? tail_cost_ : head_cost_) += payload.size();
  if (!in_tail) head_output_ += payload.size();
  return true;
}

std::uint64_t OutputWindow::least_position() const {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const Reader* reader : readers_)
    if (reader->holds_) least = std::min(least, reader->position_);
  return least;
}

bool OutputWindow::has_room() const { return tail_cost_ < limits_.tail || tail_.empty() || tail_.front().sequence <= least_position(); }

bool OutputWindow::holds_up(const Reader& reader) const {
  return reader.holds_ && !tail_.empty() && reader.position_ < tail_.front().sequence;
}

void OutputWindow::release(Reader& reader) {
  reader.holds_ = false;
  reader.dropped_before_ = dropped_last_;
  room_.notify_all();
}

void OutputWindow::release_stalled(Time now) {
  if (has_room()) return;
  // A reader on a slow line may take its time as long as nobody else waits: it is what the process writes to.
  const bool awaited = std::any_of(readers_.begin(), readers_.end(), [](const Reader* one) { return one->holds_ && one->at_end(); });
  for (Reader* reader : readers_) {
    if (!holds_up(*reader)) continue;
    const bool moves = awaited ? reader->position_ >= reader->goal_ : reader->position_ != reader->from_;
    if (!reader->since_ || moves) {
      reader->since_ = now;
      reader->from_ = reader->position_;
      reader->goal_ = last_;
    } else if (now - *reader->since_ >= (awaited ? kPatience : kPatienceAlone)) {
      release(*reader);
    }
  }
}

void OutputWindow::release_all() {
  if (has_room()) return;
  for (Reader* reader : readers_)
    if (holds_up(*reader)) release(*reader);
}

void OutputWindow::shrink() {
  const std::uint64_t least = least_position();
  while (tail_cost_ > limits_.tail && tail_.size() > 1 && tail_.front().sequence <= least) {
    const Stored& frame = tail_.front();
    tail_cost_ -= cost_of(frame);
    if (is_output(frame.type)) dropped_bytes_ += frame.encoded.size() - kFrameHead;
    dropped_last_ = frame.sequence;
    tail_.pop_front();
  }
}

Result<> OutputWindow::check(std::uint64_t after) const {
  const std::uint64_t head_last = head_.empty() ? 0 : head_.back().sequence;
  if (after <= last_ && (after <= head_last || after >= dropped_last_)) return {};
  return fail(ErrorKind::conflict, "outside_window",
              fmt::format("sequence {} is not in the replay window first={} last={}", after, first(), last_),
              "attach after a sequence of the window, or after 0 for all that is left");
}

void OutputWindow::wake_readers() {
  for (Reader* reader : readers_) reader->news.notify();
}

}  // namespace space::agent

#include "wire/agent_protocol.h"

#include <bit>
#include <cstring>
#include <fmt/format.h>

namespace space::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "the frames are little endian and copied as they are");

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kHeadBytes = 1 + 8;  // type and sequence, counted by the length
constexpr std::size_t kExitBytes = 4 + 1 + 1;
constexpr std::uint8_t kTimedOut = 1;
constexpr std::uint8_t kCoreDumped = 2;

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

template <class T>
T get(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

tl::unexpected<Error> bad_frame(std::string what) {
  return fail(ErrorKind::unavailable, "agent_protocol_error", "the agent sent " + std::move(what),
              "delete the sandbox: its agent cannot be trusted to work");
}

// What the payload of a type may be.
Result<> check_payload(FrameType type, std::size_t length) {
  const auto need = [&](std::size_t exact) -> Result<> {
    if (length == exact) return {};
    return bad_frame(fmt::format("a frame of type {} with {} bytes in place of {}", static_cast<int>(type), length, exact));
  };
  switch (type) {
    case FrameType::start:
      return need(4);
    case FrameType::exit:
      return need(kExitBytes);
    case FrameType::dropped:
      return need(8);
    case FrameType::keepalive:
      return need(0);
    case FrameType::stdout_bytes:
    case FrameType::stderr_bytes:
    case FrameType::pty_bytes:
      return {};
  }
  return bad_frame(fmt::format("a frame of the unknown type {}", static_cast<int>(type)));
}

}  // namespace

std::string encode_frame(const Frame& frame) {
  std::string out;
  out.reserve(kLengthBytes + kHeadBytes + frame.payload.size());
  put(out, static_cast<std::uint32_t>(kHeadBytes + frame.payload.size()));
  put(out, static_cast<std::uint8_t>(frame.type));
  put(out, frame.sequence);
  out.append(frame.payload);
  return out;
}

std::string encode_exit(const ProcessExit& exit) {
  std::string out;
  put(out, exit.code);
  put(out, exit.signal);
  put(out, static_cast<std::uint8_t>((exit.timed_out ? kTimedOut : 0) | (exit.core_dumped ? kCoreDumped : 0)));
  return out;
}

Result<ProcessExit> decode_exit(std::string_view payload) {
  if (payload.size() != kExitBytes) return bad_frame(fmt::format("an exit of {} bytes", payload.size()));
  ProcessExit exit;
  exit.code = get<std::int32_t>(payload, 0);
  exit.signal = get<std::uint8_t>(payload, 4);
  const auto flags = get<std::uint8_t>(payload, 5);
  exit.timed_out = (flags & kTimedOut) != 0;
  exit.core_dumped = (flags & kCoreDumped) != 0;
  const bool by_signal = exit.signal != 0;
  if ((flags & ~(kTimedOut | kCoreDumped)) != 0 || exit.signal > 64 || (by_signal ? exit.code != -1 : exit.code < 0 || exit.code > 255))
    return bad_frame(fmt::format("an exit with code {}, signal {}, flags {}", exit.code, exit.signal, flags));
  return exit;
}

std::string encode_u32(std::uint32_t value) {
  std::string out;
  put(out, value);
  return out;
}

std::string encode_u64(std::uint64_t value) {
  std::string out;
  put(out, value);
  return out;
}

Result<std::uint32_t> decode_start(std::string_view payload) {
  if (payload.size() != 4) return bad_frame(fmt::format("a start of {} bytes", payload.size()));
  return get<std::uint32_t>(payload, 0);
}

Result<std::uint64_t> decode_dropped(std::string_view payload) {
  if (payload.size() != 8) return bad_frame(fmt::format("a dropped count of {} bytes", payload.size()));
  return get<std::uint64_t>(payload, 0);
}

Result<std::vector<Frame>> FrameReader::feed(std::string_view bytes) {
  if (failed_) return bad_frame("more after a broken frame");
  std::vector<Frame> frames;

  pending_.append(bytes);
  std::string_view rest = pending_;
  const auto parse = [&]() -> Result<> {
    while (rest.size() >= kLengthBytes) {
      const std::size_t length = get<std::uint32_t>(rest, 0);
      if (length < kHeadBytes || length > kHeadBytes + kMaxFramePayload) return bad_frame(fmt::format("a frame of {} bytes", length));
      if (rest.size() < kLengthBytes + length) break;
      Frame frame;
      frame.type = static_cast<FrameType>(get<std::uint8_t>(rest, kLengthBytes));
      frame.sequence = get<std::uint64_t>(rest, kLengthBytes + 1);
      TRY_VOID(check_payload(frame.type, length - kHeadBytes));
      TRY_VOID(check_sequence(frame));
      frame.payload.assign(rest.substr(kLengthBytes + kHeadBytes, length - kHeadBytes));
      rest.remove_prefix(kLengthBytes + length);
      frames.push_back(std::move(frame));
    }
    return {};
  };
  auto parsed = parse();
  if (!parsed) {
    failed_ = true;
    pending_ = {};
    return tl::unexpected(std::move(parsed).error());
  }
  pending_.erase(0, pending_.size() - rest.size());
  return frames;
}

Result<> FrameReader::check_sequence(const Frame& frame) {
  if (frame.type == FrameType::keepalive) {
    if (frame.sequence != 0) return bad_frame("a keepalive with a sequence");
    return {};
  }
  // A dropped frame stands for all that left the window and bears the last of their sequences: the only jump there is.
  // The first frame may have any sequence, since a reader attaches where it left off.
  const bool follows =
      last_sequence_ == 0 || frame.type == FrameType::dropped ? frame.sequence > last_sequence_ : frame.sequence - 1 == last_sequence_;
  if (!follows || frame.sequence == 0) return bad_frame(fmt::format("sequence {} after {}", frame.sequence, last_sequence_));
  if (ended_) return bad_frame("a frame after the exit");
  ended_ = frame.type == FrameType::exit;
  last_sequence_ = frame.sequence;
  return {};
}

}  // namespace space::wire

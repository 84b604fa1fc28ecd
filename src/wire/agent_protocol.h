// What node and agent say to each other: HTTP on TCP 49983 of the guest (docs/agent-protocol.md), and the frames in which a
// process's events travel. The agent is hostile: every limit here is checked by the reader.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::wire {

inline constexpr std::uint16_t kAgentPort = 49983;
inline constexpr int kAgentProtocol = 1;
// How long the agent waits for users' processes to stand still. Who asks waits a little longer, so that the agent's own word comes first.
inline constexpr std::chrono::seconds kFreezeLimit{5};

// The same addresses in every sandbox, so that a loaded guest needs no new configuration.
inline constexpr const char* kGuestAddress = "10.0.0.2";       // /30
inline constexpr const char* kHostAddress = "10.0.0.1";        // the TAP's end in the sandbox's namespace
inline constexpr const char* kGuestAddress6 = "fd00:5ace::2";  // /64
inline constexpr const char* kHostAddress6 = "fd00:5ace::1";

// One event of a process. Frame: u32 length of what follows, u8 type, u64 sequence, payload; all little endian.
enum class FrameType : std::uint8_t {
  start = 1,  // payload: u32 pid in the guest
  stdout_bytes = 2,
  stderr_bytes = 3,
  pty_bytes = 4,
  exit = 5,       // payload: ProcessExit
  dropped = 6,    // payload: u64 bytes of output that left the window here; bears the last of their sequences
  keepalive = 7,  // sequence 0, no payload; every 10 s without another frame
};

struct ProcessExit {
  std::int32_t code = 0;    // exit status, or -1 when ended by a signal
  std::uint8_t signal = 0;  // the signal that ended it, or 0
  bool timed_out = false;   // ended by the time limit
  bool core_dumped = false;
};

struct Frame {
  FrameType type = FrameType::keepalive;
  std::uint64_t sequence = 0;  // from 1 for every process; without gaps but for what a dropped frame stands for
  std::string payload;
};

inline constexpr std::size_t kMaxFramePayload = 64 << 10;

std::string encode_frame(const Frame& frame);
std::string encode_exit(const ProcessExit& exit);
Result<ProcessExit> decode_exit(std::string_view payload);
std::string encode_u32(std::uint32_t value);  // the payload of a start frame
std::string encode_u64(std::uint64_t value);  // the payload of a dropped frame
Result<std::uint32_t> decode_start(std::string_view payload);
Result<std::uint64_t> decode_dropped(std::string_view payload);

// Takes bytes as they come; refuses unknown types, payloads of a wrong size, sequences that do not follow one another and
// frames after the exit. After an error it refuses everything.
class FrameReader {
 public:
  Result<std::vector<Frame>> feed(std::string_view bytes);

 private:
  Result<> check_sequence(const Frame& frame);
  std::string pending_;
  std::uint64_t last_sequence_ = 0;
  bool ended_ = false;
  bool failed_ = false;
};

}  // namespace space::wire

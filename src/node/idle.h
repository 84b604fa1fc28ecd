// For how long nobody used a sandbox, as far as it is not told by requests and sessions: how hard its processors worked and when, and what
// passed through the gateway. Both are noticed by looking (watch_use.h). Plain values of node's loop, one of each for a sandbox.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace space::node {

using Instant = std::chrono::steady_clock::time_point;

// So late may be noticed what was use: the gateway's workers tell every two seconds, and they are asked every two.
inline constexpr std::chrono::milliseconds kUnseen{4'000};

// How long ago `last` is for certain, in ms: what may not have been noticed yet does not count as rest.
std::int64_t unused_ms(Instant last, Instant now);

class GuestWork {
 public:
  static constexpr std::int64_t kHighest = 101;  // in percent of one core; stands for everything above 100
  struct Height {
    std::int64_t percent = 0;
    Instant last;
  };

  // The processor time of its VMM so far, in clock ticks.
  void look(std::uint64_t ticks, std::uint64_t ticks_per_s, Instant now);
  // It stands still: what its VMM takes until it goes on is not work, nor is the time between.
  void stand() { before_.reset(); }
  // For each height the last look that found it working as much; the highest first, which is the oldest too. One that did not work at
  // all stands for nothing, so at most kHighest of them.
  const std::vector<Height>& heights() const { return heights_; }

 private:
  struct Look {
    std::uint64_t ticks = 0;
    Instant at;
  };
  std::optional<Look> before_;
  std::vector<Height> heights_;
};

class Traffic {
 public:
  // As the gateway counts them for a sandbox, of what really reached the outside: one that tries without end what its policy refuses rests
  // all the same. They begin anew with each of the gateway's workers.
  struct Counters {
    std::int64_t open = 0;  // connections, now
    std::int64_t connections = 0, bytes = 0;
  };
  // An open connection on which nothing has moved for so long is one that a program keeps for later, and no use.
  static constexpr std::chrono::minutes kSilent{5};

  // Whether it is use: something passed since the last look, or somebody may be waiting for an answer.
  bool look(const Counters& counters, Instant now);

 private:
  std::optional<Counters> before_;
  Instant moved_;
};

}  // namespace space::node

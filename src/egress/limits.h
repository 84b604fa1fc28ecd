// How much a sandbox may send: one budget for all of its connections, kept by the worker.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "egress/settings.h"

namespace space::egress {

// A bucket that fills at `rate` a second and holds one second's worth. Rate 0: no limit.
class Bucket {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit Bucket(std::uint64_t rate = 0) : rate_(rate) {}
  void set_rate(std::uint64_t rate) { rate_ = rate; }
  // Takes `amount`, going below zero when it must; how long to wait until the bucket is even again.
  std::chrono::milliseconds take(std::uint64_t amount, Time now);
  bool try_take(std::uint64_t amount, Time now);  // false: nothing was taken

 private:
  void fill(Time now);
  std::uint64_t rate_ = 0;
  double level_ = 0;
  Time filled_{};
};

class Budget {
 public:
  void set(const Limits& limits);
  const Limits& limits() const { return limits_; }

  // Counts `bytes` that go either way. How long to wait before the next ones; nullopt when the total is used up: cut the connection.
  std::optional<std::chrono::milliseconds> charge(std::uint64_t bytes);
  bool request();  // one more request; false: over the rate
  bool used_up() const { return limits_.total_bytes != 0 && total_ >= limits_.total_bytes; }
  std::uint64_t total() const { return total_; }
  void restore_total(std::uint64_t total) { total_ = total; }  // of the worker before

 private:
  Limits limits_;
  Bucket bytes_, requests_;
  std::uint64_t total_ = 0;
};

}  // namespace space::egress

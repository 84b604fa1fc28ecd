// Which decisions of one sandbox become events of their own, and which are told as one with a count. A guest that asks a thousand times a
// second fills the log with one fact; it must not thereby push out another one. So every kind and verdict has a budget of its own, and all
// of them together have one, since a guest that floods with each would push out what others did. What goes beyond is counted, never
// dropped: the counts of all events together are the number of decisions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "egress/event.h"
#include "egress/limits.h"

namespace space::egress {

// Belongs to the worker's loop. Its memory is bounded: kinds and verdicts are words of this program, and of each at most kMostAlike
// different decisions wait.
class Reporter {
 public:
  using Time = Bucket::Time;
  static constexpr std::uint64_t kRequestsPerSecond = 200;  // allowed ones, which say where data went
  static constexpr std::uint64_t kOthersPerSecond = 50;
  // Of all kinds and verdicts together. A few of each do not count here, so that no other one takes everything: 300 of the twenty there
  // are.
  static constexpr std::uint64_t kAllPerSecond = 240, kFewPerSecond = 3;
  static constexpr std::size_t kMostAlike = 32;

  // The event itself, to be told at once; or nullopt: it was added to those that wait for flush().
  std::optional<Event> take(Event event, Time now);
  bool waiting() const;
  // What waits. Decisions with the same destination, protocol, rule, credential, verdict and reason are one event with their count; of
  // its other fields it has those that all of them agree on, and the sums of the bytes. At most kMostAlike are told, in turns of each kind
  // and verdict; the others, and what was too different to be kept apart, are one event for each kind and verdict, marked `unreported`.
  std::vector<Event> flush();

 private:
  struct Class {
    Bucket budget, few{kFewPerSecond};
    std::map<std::string, Event> alike;
    std::optional<Event> rest;
    void add_to_rest(const Event& event);
  };
  Bucket all_{kAllPerSecond};
  std::map<std::pair<std::string, std::string>, Class> classes_;  // by kind and verdict
};

}  // namespace space::egress

// Two stores of machines made ahead, for each (template, size) in use: *spawned* VMM processes that wait for a load, and
// *ready* VMs that are loaded, have answered once and are paused. A create takes the best there is.
//
// How many ready ones are kept follows the demand: a create that finds none, or takes the last one, raises the number (up to
// `ready_most`); what nobody needed for a minute is given back, down to `ready`.
//
// Making a machine costs processor time that those who wait lack, so no more than `makers` are made at a time, by creates that found
// none and by the refilling together, in the order in which they asked; a create that waits gets what is finished first, and what is
// being made then hurries. Refilling gives way to creates while three quarters of what is wanted are there. A machine leaves its
// store by a move, so that it cannot be handed out twice. For node's loop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/async.h"
#include "node/machine.h"

namespace space::node {

struct PoolLimits {
  std::size_t spawned = 0;
  std::size_t ready = 0;
  std::size_t kinds = 4;
  std::size_t ready_most = 0;  // less than `ready`: the number stays what it is
  std::size_t makers = 1;
};

struct PoolStats {
  std::string template_digest;
  vmm::Size size;
  std::size_t spawned = 0, ready = 0, ready_wanted = 0;
  std::uint64_t hits = 0, misses = 0;  // of takes; a hit is a ready one when ready ones are kept, else a spawned one
};

// Whether a create gets the same base of both, at the same size.
bool same_base(const tmpl::Release& a, const tmpl::Release& b);

class Pools {
 public:
  Pools(asio::any_io_executor executor, Machines& machines, PoolLimits limits);
  ~Pools();

  // The right to make a machine, given back by the end of its last copy.
  using Slot = std::shared_ptr<void>;
  struct Taken {
    Machine machine;     // none: it has to be spawned
    bool ready = false;  // else: it has to be loaded
    Slot slot;           // held by who makes it until it answers
  };
  // Waits only while as many machines are being made as may be. Nothing there: a miss. Marks the kind as in use, so that its stores
  // fill.
  asio::awaitable<Taken> take(std::shared_ptr<const tmpl::Base> base);
  void keep(const std::shared_ptr<const tmpl::Base>& base);   // fill its stores from now on
  asio::awaitable<void> forget(std::string template_digest);  // its template is gone
  // Gives back kinds whose base a create by none of `releases` would get. `as_of`: uses() before those were read; what was used since
  // stays.
  asio::awaitable<void> retain(std::vector<tmpl::Release> releases, std::uint64_t as_of);
  std::uint64_t uses() const { return uses_; }
  std::vector<PoolStats> stats() const;

  // While one exists, nothing new is begun in the background.
  class Foreground {
   public:
    explicit Foreground(Pools& pools);
    Foreground(const Foreground&) = delete;
    Foreground& operator=(const Foreground&) = delete;
    ~Foreground();

   private:
    Pools& pools_;
  };

  void stop();  // fills nothing more, and gives up what is being made
  // Stops filling, waits for what is being made and destroys all of it.
  asio::awaitable<void> drain();

 private:
  struct Kind {
    std::shared_ptr<const tmpl::Base> base;
    std::uint64_t number = 0;  // one that gave way and came back is another: what was on its way into the first counts for that
    std::deque<Machine> spawned, ready;
    std::uint64_t hits = 0, misses = 0;
    std::uint64_t last_use = 0;
    std::size_t making = 0, spawning = 0;                // on their way into `ready` and `spawned`
    std::chrono::steady_clock::time_point not_before{};  // after a failure
    bool failed = false;                                 // the last one was not made, perhaps for want of processors: the next hurries
    std::size_t wanted = 0;                              // ready ones, by the demand
    std::size_t unused = 0;                              // ready ones that no create took since `counted_from`
    std::chrono::steady_clock::time_point counted_from{};
  };
  Kind& kind_of(const std::shared_ptr<const tmpl::Base>& base);
  Kind* hungriest();
  void raise(Kind& kind);
  void give_back();  // what was not needed for a while
  asio::awaitable<void> drop(std::function<bool(const Kind&)> which);
  asio::awaitable<void> fill();
  asio::awaitable<void> fill_one(std::string key, std::uint64_t number, bool ready, Slot slot);
  std::optional<Taken> at_once(Kind& kind);
  Slot slot();
  void serve();  // those who wait, with what there is
  asio::awaitable<Result<Machine>> make(std::string key, bool ready);
  void begun(const Machine& machine, const Kind& kind);  // it is being made: whoever waits makes it hurry
  asio::awaitable<void> stopped();                       // returns when drain has begun
  void watch(Machine& machine);
  void lost(const std::string& vm_id);
  asio::awaitable<void> discard(std::vector<Machine> machines);

  asio::any_io_executor executor_;
  Machines& machines_;
  PoolLimits limits_;
  struct Waiting {
    std::string key;
    Signal signal;
    std::optional<Taken> taken;
  };
  std::map<std::string, Kind> kinds_;  // by base key
  std::deque<std::shared_ptr<Waiting>> waiting_;
  std::vector<std::weak_ptr<vmm::Vm>> in_making_;  // at a small weight
  struct Slots {                                   // outlives the pools when a slot does
    std::size_t used = 0;
    Pools* pools;
  };
  std::shared_ptr<Slots> slots_ = std::make_shared<Slots>(Slots{0, this});
  std::uint64_t uses_ = 0, kinds_made_ = 0;
  std::size_t foreground_ = 0;
  std::chrono::steady_clock::time_point waiting_since_{};
  bool stopping_ = false;
  bool filling_ = false;
  std::size_t fills_ = 0;
  std::size_t discarding_ = 0;
  std::shared_ptr<Signal> wake_;
};

}  // namespace space::node

// The output of one process, kept for replay in a bounded window, and its readers.
//
// Events get sequences from 1 on. The first 64 KiB of output stay, and the last `tail` bytes: what leaves between them is stood for
// by one `dropped` frame, which bears the last sequence that left and counts the bytes. A frame leaves only when every reader that
// holds it has it, so such a reader misses nothing; when nothing may leave, `has_room` is false and the process's pipe is not read any
// more: that is the back-pressure. A reader that stalls loses its hold (`release_stalled`): a process, its end and its other readers
// wait for nobody who does not read. Frames are kept as they travel, encoded. Belongs to the loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/wakeup.h"
#include "base/result.h"
#include "wire/agent_protocol.h"

namespace space::agent {

struct WindowLimits {
  std::size_t head = 64 << 10;  // bytes of output
  std::size_t tail = 1 << 20;   // bytes of frames, with what keeping them costs
};

class OutputWindow {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kPatience{10}, kPatienceAlone{30};
  // What a reader is sent at once. It moves when all of that was written, so it is little: one on a slow line moves often enough.
  static constexpr std::size_t kBatch = 16 << 10;

  // One reader's position: the last sequence it has. Detaches when destroyed.
  class Reader {
   public:
    Reader(OutputWindow& window, asio::any_io_executor executor, std::uint64_t after);
    ~Reader();
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    // Appends the frames after the position to `out`, until it holds `most` bytes or more, and moves on. False: nothing new, or lost.
    // A reader that had lost its hold has it again when nothing left that it has not got.
    bool take(std::string& out, std::size_t most);
    // It had lost its hold, and something left that it has not got: what follows is not for it any more.
    bool lost() const;
    bool at_end() const { return position_ == window_.last_; }
    Wakeup news;  // notified when there is more, or the process ended

   private:
    friend class OutputWindow;
    OutputWindow& window_;
    std::uint64_t position_;
    bool holds_ = true;
    std::uint64_t dropped_before_ = 0;   // dropped_last_ when the hold was lost
    std::optional<Time> since_;          // when it was last seen to do what is asked of one that holds all others up, and then:
    std::uint64_t from_ = 0, goal_ = 0;  // its position, and the last sequence that was there
  };

  // `limits` may change while the window lives and must outlive it. `room` is notified when readers moved on or detached.
  OutputWindow(const WindowLimits& limits, Signal& room) : limits_(limits), room_(room) {}

  void append(wire::FrameType type, std::string_view payload);
  bool has_room() const;
  // To be called about every second while there is no room. Of those for whom there is none, one that did not move for kPatienceAlone
  // loses its hold; and while another reader has all there is and waits, one that did not get in kPatience what was there at its
  // beginning. Notifies `room`.
  void release_stalled(Time now);
  // At once, of all for whom there is no room.
  void release_all();
  std::uint64_t first() const { return dropped_last_ == 0 ? 1 : dropped_last_ + 1; }  // all from here to last() is there
  std::uint64_t last() const { return last_; }
  // Whether a reader that has everything up to `after` can go on: conflict/outside_window with "first=N last=M" at the end.
  Result<> check(std::uint64_t after) const;
  std::size_t cost() const { return head_cost_ + tail_cost_; }  // bytes of memory
  void wake_readers();

 private:
  struct Stored {
    std::uint64_t sequence;
    wire::FrameType type;
    std::string encoded;
  };
  static std::size_t cost_of(const Stored& frame);
  void store(wire::FrameType type, std::string_view payload);
  bool extend_last(wire::FrameType type, std::string_view payload);
  bool holds_up(const Reader& reader) const;
  void release(Reader& reader);
  std::uint64_t least_position() const;  // of all readers with a hold; the highest value when there are none
  void shrink();

  const WindowLimits& limits_;
  Signal& room_;
  std::vector<Reader*> readers_;
  std::deque<Stored> head_, tail_;
  std::size_t head_output_ = 0;  // bytes of output in the head
  std::size_t head_cost_ = 0, tail_cost_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t handed_ = 0;  // the highest sequence that a reader was given: such a frame does not change any more
  std::uint64_t dropped_last_ = 0, dropped_bytes_ = 0;
};

}  // namespace space::agent

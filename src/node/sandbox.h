// One sandbox in memory: its record, its machine, its sessions, and the strand on which its operations follow one another.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "base/async.h"
#include "node/idle.h"
#include "node/machine.h"
#include "node/record.h"
#include "node/sessions.h"
#include "node/strand.h"
#include "snapshot/blob_store.h"

namespace space::node {

struct Sandbox {
  explicit Sandbox(asio::any_io_executor executor) : strand(executor), changed(executor) {}

  SandboxRecord record;
  Machine machine;  // empty while creating and after the end
  Strand strand;
  Signal changed;  // record.state, removing or gone changed
  SessionTable sessions;
  bool removing = false;  // a delete waits: whoever holds the strand gives up at its next step
  bool gone = false;      // no longer in the table
  bool resting = false;   // on its way into storage or back to a checkpoint: its agent is not to be asked now
  bool vmm_gone = false;  // the VMM ended and nobody has dealt with it yet
  // What its VM's memory was at its last checkpoint or load, and the hold on the blobs that it stands on.
  std::shared_ptr<const snapshot::MemoryState> saved_memory;
  std::unique_ptr<snapshot::Lease> lease;
  bool switched = false;                             // its VM writes to the last of its disks; else perhaps still to the one before
  bool merging = false;                              // generations of its disk are being merged
  std::optional<Error> merge_error;                  // why the last merge failed
  std::shared_ptr<const std::string> gateway_state;  // of the checkpoint that it came from, for the gateway; nullptr for none
  std::optional<Error> failure;                      // of its create, for those who asked for the same one

  // When somebody last used it, or it used its network; open streams count as use. Its work stands for itself: how much is use, whoever
  // puts it to rest knows.
  mutable Instant used = Instant::clock::now();
  GuestWork work;
  Traffic traffic;
  // Of the snapshots that are taken by themselves: when it was looked at last, and the VMM's processor time and the disk's mark then.
  std::chrono::steady_clock::time_point snapshot_at{};
  std::uint64_t snapshot_ticks = 0;
  std::int64_t snapshot_mark = 0;
  bool snapshot_running = false;

  std::int64_t idle_ms(Instant now) const { return streams.empty() ? unused_ms(used, now) : 0; }

  // Streams to the agent that a pause or the end must cut. The entry is removed by its owner.
  std::list<std::function<void()>> streams;

  void interrupt_streams() {
    for (auto& cut : streams) cut();
  }

  // Not answering now, but its processes are there and will go on.
  bool comes_back() const {
    return !gone && !removing && (resting || record.state == SandboxState::paused || record.state == SandboxState::suspended);
  }

  // The agent, when the sandbox runs; else conflict/sandbox_<state> with what to do.
  Result<std::shared_ptr<wire::AgentClient>> agent() const;
};

}  // namespace space::node

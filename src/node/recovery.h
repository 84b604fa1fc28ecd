// What a start of node does before it listens: it makes the table of sandboxes agree with what is on this machine.
//
//   found                                          becomes
//   record `running`, its VM alive                 adopted; resumed when its vCPUs stood still; its agent gets its identity again,
//                                                  which also thaws what a cut-off pause had frozen, and ends old connections where
//                                                  a load was cut off before it
//   record `paused`, its VM alive                  adopted, stays paused
//   record `running` or `paused`, no VM            `ended` (vmm_gone)
//   record `suspended` or `stopped`                the same; a VM of it that was left goes, and what of the store nobody needs
//   record `ended`                                 the same; a VM of it that was left goes
//   a record that cannot be read                   `ended` (record_unreadable): deletable, never dropped by itself
//   a folder in trash/                             the delete is finished
//   a folder in pool/, a VM that no record names   removed
#pragma once

#include <string>
#include <vector>

#include "base/async.h"
#include "node/sandboxes.h"
#include "vmm/driver.h"

namespace space::node {

struct Recovered {
  std::size_t adopted = 0, stored = 0, ended = 0, removed = 0;
  std::vector<std::string> leftovers;  // VMs and pool folders without an owner, for sweep_leftovers
};

// `driver` and the parts are the ones of the running node. Fails only when the folders or the list of VMs cannot be read; what
// goes wrong with one sandbox is logged and ends that one.
Task<Recovered> recover(Sandboxes& sandboxes, const Sandboxes::Parts& parts, vmm::Driver& driver);

// Removes them one after another; what fails stays for the next start. May run while the node serves: a VM's id is never reused.
asio::awaitable<void> sweep_leftovers(std::vector<std::string> leftovers, const RecordStore& records, BlockingPool& disk,
                                      vmm::Driver& driver);

}  // namespace space::node

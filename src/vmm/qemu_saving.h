// What is said to QEMU to save a VM that goes on (docs/vm.md, "Saving"). Its disk: qemu_disk.h.
#pragma once

#include <functional>
#include <string>

#include "base/async.h"
#include "base/fd.h"
#include "base/json.h"

namespace space::vmm {

// Runs one QMP command; the descriptor travels with it.
using QemuAsk = std::function<Task<json::value>(std::string, json::object, const Fd*)>;

// Device state without memory into `file`, open for writing only. The VM is paused. It gives the number of the set of descriptors that
// is left in the VMM: taken away again once the guest runs.
Task<std::int64_t> qemu_save_devices(QemuAsk ask, const Fd& file);

// A numbered set of descriptors that the VMM opens as /dev/fdset/N. It chooses the number.
Task<std::int64_t> qemu_add_descriptor(QemuAsk ask, const Fd& file);
// One that is not in use closes with its set; a failure leaves a descriptor open in the VMM and nothing else.
asio::awaitable<void> qemu_remove_descriptor(QemuAsk ask, std::int64_t set);

}  // namespace space::vmm

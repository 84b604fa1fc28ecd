// What is said to QEMU to save a VM that goes on (docs/vm.md, "Saving"). Its disk: qemu_disk.h.
#pragma once

#include <functional>
#include <string>

#include "base/async.h"
#include "base/fd.h"
#include "base/json.h"
#include "vmm/qmp.h"

namespace space::vmm {

// Runs one QMP command; the descriptor travels with it.
using QemuAsk = std::function<Task<json::value>(std::string, json::object, const Fd*)>;

// Device state without memory into a file of the VMM's, open for writing only: a set that qemu_add_descriptor made. The VM is paused
// (one that is not stands still meanwhile and runs on).
QmpCommand qemu_save_devices(std::int64_t set);

// A numbered set of descriptors that the VMM opens as /dev/fdset/N. It chooses the number.
Task<std::int64_t> qemu_add_descriptor(QemuAsk ask, const Fd& file);
// One that is not in use closes with its set; a failure leaves a descriptor open in the VMM and nothing else.
asio::awaitable<void> qemu_remove_descriptor(QemuAsk ask, std::int64_t set);

}  // namespace space::vmm

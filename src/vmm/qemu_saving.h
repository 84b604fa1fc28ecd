// What is said to QEMU to save a VM that goes on, and to give its disk a next generation (docs/vm.md, "Saving").
#pragma once

#include <functional>
#include <string>

#include "base/async.h"
#include "base/fd.h"
#include "base/json.h"

namespace space::vmm {

// Runs one QMP command; the descriptor travels with it.
using QemuAsk = std::function<Task<json::value>(std::string, json::object, const Fd*)>;

// Device state without memory into `file`, open for writing only. The VM is paused.
Task<> qemu_save_devices(QemuAsk ask, const Fd& file);

// Opens the empty image `file` (read and write) beside the disk; gives its node's name.
Task<std::string> qemu_add_overlay(QemuAsk ask, const Fd& file);

// Puts that node on top of the disk, whatever its top is now. The VM is paused.
Task<> qemu_switch_overlay(QemuAsk ask, std::string node);

// Copies everything between the base's overlay and the top of the disk into the top, inside the VMM's own jail.
Task<> qemu_flatten_disk(QemuAsk ask);

}  // namespace space::vmm

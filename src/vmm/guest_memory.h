// Where a guest's memory lies in its VMM.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "vmm/driver.h"
#include "wire/warden_client.h"

namespace space::vmm {

struct AddressRange {
  std::uint64_t address = 0, bytes = 0;
};

// The map of the guest's memory file in the text of /proc/PID/maps (proc_pid_maps(5)). A VMM that was taken over can arrange its maps
// as it likes; so exactly one unbroken private, writable map of the file from its beginning is accepted, else
// unavailable/guest_memory_not_found.
Result<AddressRange> find_guest_memory(std::string_view maps);

Result<GuestMemory> guest_memory(wire::MemoryFiles files);  // blocks shortly

}  // namespace space::vmm

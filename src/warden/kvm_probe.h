// Whether KVM works here, and not only looks as if: the device opens, the processor has hardware virtualisation, and a virtual
// processor really ran an instruction (Linux Documentation/virt/kvm/api.rst).
#pragma once

namespace space::warden {

// Up to a second where KVM hangs. Before the process has threads.
bool kvm_works();

}  // namespace space::warden

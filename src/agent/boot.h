// PID 1's work before anything else can run: the kernel has started /init out of the initramfs and nothing exists yet. Each step is
// one function; what a template may lack only costs a line in the log, what nothing works without ends the boot.
#pragma once

#include "base/result.h"

namespace space::agent {

// The whole of it; afterwards the process's root is the template's filesystem and the network is up.
Result<> boot();

// Steps, in this order.
Result<> mount_kernel_filesystems();          // /dev, /proc, /sys; standard descriptors on the console
Result<> insert_modules(const char* folder);  // those that <folder>/order names, one a line; then frees their memory
Result<> enter_root(const char* device);      // ext4 at /newroot becomes /; the agent's own file stays in the initramfs
void mount_rest();                            // /dev/pts, /dev/shm, /run; links of /dev; control groups `user` and `agent`
Result<> grow_root(const char* device);       // the filesystem to the size of its device, online
Result<> bring_network_up();                  // lo and eth0 with the fixed addresses of wire/agent_protocol.h
void write_network_files();                   // /etc/resolv.conf
void quiet_kernel();                          // fewer timer ticks when nothing runs

// Writes a short text into a file of /proc or /sys.
Result<> write_setting(const char* path, const char* text);

}  // namespace space::agent

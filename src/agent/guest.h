// What belongs to the machine as a whole and must be set after every load: clock, randomness, names. The real one changes the VM;
// on a host, in tests and under the sim driver nothing of it may be touched.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace space::agent {

class Guest {
 public:
  virtual ~Guest() = default;
  virtual Result<> set_clock(std::int64_t wall_ns) = 0;                // CLOCK_REALTIME
  virtual Result<> add_entropy(std::string_view bytes) = 0;            // credited, then the kernel's generator is reseeded (random(4))
  virtual Result<> set_hostname(const std::string& hostname) = 0;      // and its line in /etc/hosts
  virtual Result<> set_machine_id(const std::string& machine_id) = 0;  // /etc/machine-id
  virtual Result<> set_authority(const std::string& pem) = 0;          // see authority.h
  virtual Result<> announce(const std::string& json) = 0;              // the event file /run/space/load, replaced by rename
  virtual void end_old_connections(std::uint16_t keep_port) = 0;       // see old_connections.h
  virtual Result<> set_environment(const std::string& json) = 0;       // /run/space/environment, replaced by rename
  virtual std::string hooks_folder() const = 0;                        // "": none
};

std::unique_ptr<Guest> real_guest();
std::unique_ptr<Guest> no_guest();  // every call succeeds and does nothing

}  // namespace space::agent

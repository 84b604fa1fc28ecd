// Asks the roles whether they answer.
#pragma once

#include <optional>
#include <string>

#include "cli/server_settings.h"

namespace space::cli {

struct ServerFacts {
  std::string url;      // where clients on this machine find it
  std::string machine;  // what the VMs run on, for people: "qemu 7.2.22 on tcg"
};

// Blocks for at most two seconds; nothing when node or api does not answer yet.
std::optional<ServerFacts> probe(const ServerSettings& settings);

}  // namespace space::cli

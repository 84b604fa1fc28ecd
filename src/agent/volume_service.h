// A guest that is a volume: its folder as a filesystem for other sandboxes, each on a wire of its own.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "agent/fuse_server.h"
#include "agent/volume_wire.h"

namespace space::agent {

class VolumeService {
 public:
  static constexpr std::size_t kMostWires = 256;
  VolumeService(std::string folder, std::string key) : folder_(std::move(folder)), key_(std::move(key)) {}
  // Answers what comes on the wire, on threads of its own, until it ends. `client`: which mount of which sandbox, as the host says; a
  // wire of the same one before is closed, for what still comes on it was asked again on this one and has been overtaken since.
  // resource_exhausted/too_many_mounts. The folder is there (Volume::open).
  Result<> serve(std::shared_ptr<VolumeWire> wire, const std::string& client);

 private:
  const std::string folder_, key_;
  std::mutex lock_;
  std::unique_ptr<FuseServer> server_;
  std::map<std::string, std::weak_ptr<VolumeWire>, std::less<>> last_;  // by client
  std::shared_ptr<int> wires_ = std::make_shared<int>();                // one holder more for each
};

}  // namespace space::agent

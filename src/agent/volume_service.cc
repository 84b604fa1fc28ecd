#include "agent/volume_service.h"

#include <linux/fuse.h>

#include <atomic>
#include <thread>

namespace space::agent {
namespace {

constexpr int kThreads = 4;  // requests of one mount that are done side by side

// One connection. Its threads take turns at reading, and at writing.
struct Serving {
  std::shared_ptr<VolumeWire> wire;
  std::shared_ptr<FuseClient> client;
  std::shared_ptr<int> counted;
  std::mutex reading, writing;

  void work(const FuseServer& server) {
    for (;;) {
      std::vector<std::byte> request;
      {
        const std::lock_guard turn(reading);
        request = wire->receive(sizeof(fuse_in_header));
      }
      if (request.empty()) return wire->close();
      const std::vector<std::byte> answer = server.serve(*client, request);
      if (answer.empty()) continue;
      const std::lock_guard turn(writing);
      if (!wire->send(answer)) return wire->close();
    }
  }
};

}  // namespace

Result<> VolumeService::serve(std::shared_ptr<VolumeWire> wire, const std::string& client) {
  const std::lock_guard hold(lock_);
  if (!server_) {
    TRY(server_, FuseServer::open(folder_, key_));
  }
  if (static_cast<std::size_t>(wires_.use_count()) > kMostWires)
    return fail(ErrorKind::resource_exhausted, "too_many_mounts", "this volume is mounted as often as it can be", "unmount it somewhere");
  std::erase_if(last_, [](const auto& one) { return one.second.expired(); });
  if (const auto before = last_[client].lock()) before->close();
  last_[client] = wire;
  auto serving = std::make_shared<Serving>();
  serving->wire = std::move(wire);
  serving->client = server_->client(client);
  serving->counted = wires_;
  for (int i = 0; i < kThreads; ++i) std::thread([serving, server = server_.get()] { serving->work(*server); }).detach();
  return {};
}

}  // namespace space::agent

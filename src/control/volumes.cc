#include "control/volumes.h"

#include <algorithm>

#include "base/random.h"

namespace space::control {
namespace {

constexpr std::int64_t kIdle_s = 60;  // without a request and without a mount; then it is put away
constexpr std::size_t kLongestName = 128;

}  // namespace

bool is_volume_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

Sandbox new_volume(std::string tenant, std::string name, const TemplateSize& size, std::int64_t now_ms) {
  Sandbox volume;
  volume.id = new_id();
  volume.tenant = std::move(tenant);
  volume.template_reference = kVolumeTemplate;
  volume.cpus = size.cpus;
  volume.memory_mib = size.memory_mib;
  volume.disk_mib = size.disk_mib;
  volume.metadata = {{kKindLabel, kVolumeKind}, {kVolumeName, std::move(name)}};
  volume.rest.idle_suspend_s = kIdle_s;
  volume.created_ms = now_ms;
  return volume;
}

bool is_volume_there(const Sandbox& sandbox) {
  return is_volume(sandbox) && sandbox.state != SandboxState::deleting && sandbox.state != SandboxState::deleted &&
         sandbox.state != SandboxState::failed;
}

}  // namespace space::control

#include "vmm/qemu_saving.h"

#include <fmt/format.h>

#include "base/log.h"
#include "vmm/qmp_message.h"

namespace space::vmm {
namespace {}  // namespace

Task<std::int64_t> qemu_add_descriptor(QemuAsk ask, const Fd& file) {
  json::object none;
  CO_TRY(const json::value answer, co_await ask("add-fd", std::move(none), &file));
  const json::value* set = answer.is_object() ? answer.get_object().if_contains("fdset-id") : nullptr;
  if (!set || !set->is_int64() || set->get_int64() < 0) co_return odd_answer("descriptor set");
  co_return set->get_int64();
}

asio::awaitable<void> qemu_remove_descriptor(QemuAsk ask, std::int64_t set) {
  json::object which{{"fdset-id", set}};
  auto removed = co_await ask("remove-fd", std::move(which), nullptr);
  if (!removed) log::warn("vm.descriptor_left", {{"error", removed.error()}});
}

QmpCommand qemu_save_devices(std::int64_t set) {
  return {"xen-save-devices-state", {{"filename", fmt::format("/dev/fdset/{}", set)}, {"live", false}}};
}

}  // namespace space::vmm

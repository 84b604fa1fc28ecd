#include "vmm/qemu_saving.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/random.h"

namespace space::vmm {
namespace {

constexpr std::chrono::minutes kFlattenLimit{5};
constexpr std::chrono::milliseconds kFlattenPause{20};

tl::unexpected<Error> odd_answer(std::string_view what) {
  return fail(ErrorKind::unavailable, "qmp_protocol", fmt::format("the VMM's answer has no {}", what), "delete the sandbox; its VMM cannot be trusted");
}

// A numbered set of descriptors that the VMM opens as /dev/fdset/N. It chooses the number.
Task<std::int64_t> add_descriptor(QemuAsk ask, const Fd& file) {
  json::object none;
  CO_TRY(const json::value answer, co_await ask("add-fd", std::move(none), &file));
  const json::value* set = answer.is_object() ? answer.get_object().if_contains("fdset-id") : nullptr;
  if (!set || !set->is_int64() || set->get_int64() < 0) co_return odd_answer("descriptor set");
  co_return set->get_int64();
}

// One that is not in use closes with its set; a failure leaves a descriptor open in the VMM and nothing else.
asio::awaitable<void> remove_descriptor(QemuAsk ask, std::int64_t set) {
  json::object which{{"fdset-id", set}};
  auto removed = co_await ask("remove-fd", std::move(which), nullptr);
  if (!removed) log::warn("vm.descriptor_left", {{"error", removed.error()}});
}

// The top of the guest's only disk, as the VMM names it.
Task<std::string> top_node(QemuAsk ask) {
  json::object none;
  CO_TRY(const json::value answer, co_await ask("query-block", std::move(none), nullptr));
  if (!answer.is_array() || answer.get_array().size() != 1 || !answer.get_array()[0].is_object()) co_return odd_answer("single disk");
  const json::value* inserted = answer.get_array()[0].get_object().if_contains("inserted");
  const json::value* name = inserted && inserted->is_object() ? inserted->get_object().if_contains("node-name") : nullptr;
  if (!name || !name->is_string() || name->get_string().empty() || name->get_string().size() > 31) co_return odd_answer("node of the disk");
  co_return std::string(name->get_string());
}

}  // namespace

Task<> qemu_save_devices(QemuAsk ask, const Fd& file) {
  CO_TRY(const std::int64_t set, co_await add_descriptor(ask, file));
  json::object where{{"filename", fmt::format("/dev/fdset/{}", set)}, {"live", false}};
  auto saved = co_await ask("xen-save-devices-state", std::move(where), nullptr);
  co_await remove_descriptor(ask, set);
  if (!saved) co_return fail(std::move(saved).error());
  co_return Result<>{};
}

Task<std::string> qemu_add_overlay(QemuAsk ask, const Fd& file) {
  CO_TRY(const std::int64_t set, co_await add_descriptor(ask, file));
  const std::string id = new_id(), file_node = "f" + id, node = "d" + id;
  // As in qemu_arguments.cc: no locks, no name out of the image.
  json::object protocol{{"driver", "file"}, {"filename", fmt::format("/dev/fdset/{}", set)}, {"node-name", file_node}, {"locking", "off"}, {"discard", "unmap"}};
  json::object format{{"driver", "qcow2"}, {"node-name", node}, {"file", file_node}, {"backing", nullptr}, {"discard", "unmap"}};
  auto added = co_await ask("blockdev-add", std::move(protocol), nullptr);
  if (added) {
    auto formatted = co_await ask("blockdev-add", std::move(format), nullptr);
    if (!formatted) {
      json::object which{{"node-name", file_node}};
      (void)co_await ask("blockdev-del", std::move(which), nullptr);
    }
    added = std::move(formatted);
  }
  if (added) co_return node;
  co_await remove_descriptor(ask, set);
  co_return fail(std::move(added).error());
}

Task<> qemu_switch_overlay(QemuAsk ask, std::string node) {
  CO_TRY(std::string top, co_await top_node(ask));
  json::object arguments{{"node", std::move(top)}, {"overlay", std::move(node)}};
  CO_TRY_VOID(co_await ask("blockdev-snapshot", std::move(arguments), nullptr));
  co_return Result<>{};
}

Task<> qemu_flatten_disk(QemuAsk ask) {
  CO_TRY(std::string top, co_await top_node(ask));
  const std::string job = "flatten";
  // The base's overlay is the second of the disk's files (qemu_arguments.cc). The name that is written into the image is never used.
  json::object arguments{{"job-id", job}, {"device", std::move(top)}, {"base-node", "disk1"}, {"backing-file", "below"}, {"auto-dismiss", false}};
  CO_TRY_VOID(co_await ask("block-stream", std::move(arguments), nullptr));
  for (const auto end = std::chrono::steady_clock::now() + kFlattenLimit;;) {
    json::object none;
    CO_TRY(const json::value answer, co_await ask("query-jobs", std::move(none), nullptr));
    if (!answer.is_array() || answer.get_array().size() != 1 || !answer.get_array()[0].is_object()) co_return odd_answer("single job");
    const json::object& found = answer.get_array()[0].get_object();
    const json::value* status = found.if_contains("status");
    if (!status || !status->is_string()) co_return odd_answer("status of a job");
    const bool over = status->get_string() == "concluded";
    if (!over && std::chrono::steady_clock::now() < end) {
      co_await sleep_for(kFlattenPause);
      continue;
    }
    const bool failed = !over || found.contains("error");
    json::object which{{"id", job}};
    if (over) CO_TRY_VOID(co_await ask("job-dismiss", std::move(which), nullptr));
    else (void)co_await ask("job-cancel", std::move(which), nullptr);
    if (failed) co_return fail(ErrorKind::unavailable, "disk_not_flattened", "the generations of the disk could not be copied together", "see the log of node; free some space");
    co_return Result<>{};
  }
}

}  // namespace space::vmm

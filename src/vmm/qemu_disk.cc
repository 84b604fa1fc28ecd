#include "vmm/qemu_disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "vmm/qemu_merge.h"
#include "vmm/qmp_message.h"

namespace space::vmm {
namespace {

constexpr std::chrono::minutes kMergeLimit{15};  // a large disk on a busy host; some MB take milliseconds
constexpr std::chrono::milliseconds kFirstLook{5}, kLongestLook{250};

Task<std::vector<DiskNode>> chain_below(QemuAsk ask, std::string top) {
  json::object none;
  CO_TRY(const json::value graph, co_await ask("x-debug-query-block-graph", std::move(none), nullptr));
  co_return disk_chain(graph, top);
}

// The set of descriptors that a file node was opened from: qemu_arguments.cc numbers those of the start, open_image names the others.
std::optional<std::int64_t> set_of(std::string_view file) {
  std::int64_t number = 0;
  const bool first = file.starts_with("file"), later = file.starts_with("set");
  if (!first && !later) return std::nullopt;
  const std::string_view digits = file.substr(first ? 4 : 3);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) return std::nullopt;
  return first ? number + 1 : number;
}

asio::awaitable<void> leave_out(QemuAsk ask, std::string command, json::object arguments) {
  auto done = co_await ask(std::move(command), std::move(arguments), nullptr);
  if (!done) log::warn("vm.disk_left_open", {{"error", done.error()}});
}

asio::awaitable<void> close_file(QemuAsk ask, std::string file) {
  json::object node{{"node-name", file}};
  co_await leave_out(ask, "blockdev-del", std::move(node));
  if (const auto set = set_of(file)) {
    json::object which{{"fdset-id", *set}};
    co_await leave_out(ask, "remove-fd", std::move(which));
  }
}

// A failure leaves a file open in the VMM and nothing else.
asio::awaitable<void> close_image(QemuAsk ask, DiskNode image) {
  json::object node{{"node-name", image.node}};
  co_await leave_out(ask, "blockdev-del", std::move(node));
  co_await close_file(ask, image.file);
}

// As in qemu_arguments.cc: no locks, no name out of the image.
Task<DiskNode> open_image(QemuAsk ask, const Fd& file, json::value backing, bool read_only) {
  CO_TRY(const std::int64_t set, co_await qemu_add_descriptor(ask, file));
  // A set's number is free again when nothing has it open any more. Short names: the VMM reads what it is told a byte at a time.
  const DiskNode image{fmt::format("d{}", set), fmt::format("set{}", set)};
  json::object protocol{{"driver", "file"},        {"filename", fmt::format("/dev/fdset/{}", set)},
                        {"node-name", image.file}, {"read-only", read_only},
                        {"locking", "off"},        {"discard", "unmap"}};
  json::object format{{"driver", "qcow2"},      {"node-name", image.node},       {"file", image.file},
                      {"read-only", read_only}, {"backing", std::move(backing)}, {"discard", "unmap"}};
  auto added = co_await ask("blockdev-add", std::move(protocol), nullptr);
  if (added) {
    added = co_await ask("blockdev-add", std::move(format), nullptr);
    if (!added) {
      json::object which{{"node-name", image.file}};
      co_await leave_out(ask, "blockdev-del", std::move(which));
    }
  }
  if (added) co_return image;
  co_await qemu_remove_descriptor(ask, set);
  co_return fail(std::move(added).error());
}

// Every option that an image was opened with has to be given again.
Task<> reopen(QemuAsk ask, DiskNode image, json::value backing, bool read_only) {
  json::array all;
  all.push_back(json::object{{"driver", "qcow2"},
                             {"node-name", image.node},
                             {"file", image.file},
                             {"read-only", read_only},
                             {"backing", std::move(backing)},
                             {"discard", "unmap"}});
  json::object options{{"options", std::move(all)}};
  CO_TRY_VOID(co_await ask("blockdev-reopen", std::move(options), nullptr));
  co_return Result<>{};
}

// Waits for the end of the only job.
Task<> finish_job(QemuAsk ask, std::string job) {
  auto pause = kFirstLook;
  for (const auto end = std::chrono::steady_clock::now() + kMergeLimit;;) {
    json::object none;
    CO_TRY(const json::value answer, co_await ask("query-jobs", std::move(none), nullptr));
    if (!answer.is_array() || answer.get_array().size() != 1 || !answer.get_array()[0].is_object()) co_return odd_answer("single job");
    const json::object& found = answer.get_array()[0].get_object();
    const json::value* status = found.if_contains("status");
    if (!status || !status->is_string()) co_return odd_answer("status of a job");
    if (status->get_string() == "concluded") {
      const json::value* error = found.if_contains("error");
      if (error)
        log::warn("vm.job_failed",
                  {{"job", job}, {"error", error->is_string() ? printable(std::string_view(error->get_string()), 300) : std::string()}});
      if (error)
        co_return fail(ErrorKind::unavailable, "disk_not_merged", "generations of a disk could not be merged",
                       "see the log of node; free some space");
      co_return Result<>{};
    }
    if (std::chrono::steady_clock::now() > end)
      co_return fail(ErrorKind::deadline_exceeded, "disk_not_merged", "merging generations of a disk did not end", "see the log of node");
    co_await sleep_for(pause);
    pause = std::min(pause * 2, kLongestLook);
  }
}

}  // namespace

Task<std::string> qemu_top_node(QemuAsk ask) {
  json::object none;
  CO_TRY(const json::value answer, co_await ask("query-block", std::move(none), nullptr));
  if (!answer.is_array() || answer.get_array().size() != 1 || !answer.get_array()[0].is_object()) co_return odd_answer("single disk");
  const json::value* inserted = answer.get_array()[0].get_object().if_contains("inserted");
  const json::value* name = inserted && inserted->is_object() ? inserted->get_object().if_contains("node-name") : nullptr;
  if (!name || !name->is_string() || name->get_string().empty() || name->get_string().size() > 31) co_return odd_answer("node of the disk");
  co_return std::string(name->get_string());
}

Task<DiskNode> qemu_add_overlay(QemuAsk ask, const Fd& file) {
  json::value nothing;
  co_return co_await open_image(ask, file, std::move(nothing), false);
}

Task<> qemu_drop_overlay(QemuAsk ask, DiskNode overlay) {
  json::object node{{"node-name", overlay.node}};
  CO_TRY_VOID(co_await ask("blockdev-del", std::move(node), nullptr));
  co_await close_file(ask, overlay.file);
  co_return Result<>{};
}

QmpCommand qemu_switch_overlay(std::string top, std::string node) {
  return {"blockdev-snapshot", {{"node", std::move(top)}, {"overlay", std::move(node)}}};
}

Task<> qemu_replace_generations(QemuAsk ask, std::size_t base_files, std::vector<Fd> files) {
  CO_TRY(std::string top, co_await qemu_top_node(ask));
  CO_TRY(const std::vector<DiskNode> chain, co_await chain_below(ask, top));
  if (base_files == 0 || chain.size() <= base_files) co_return odd_answer("base below its disk");
  const std::size_t base = chain.size() - base_files;  // of the base's own, the highest
  std::vector<DiskNode> made;
  std::string below = chain[base].node;
  Result<> done;
  for (const Fd& file : files) {
    json::value under(below);
    auto opened = co_await open_image(ask, file, std::move(under), true);
    if (!opened) {
      done = fail(std::move(opened).error());
      break;
    }
    below = opened->node;
    made.push_back(std::move(*opened));
  }
  json::value under(below);
  if (done) done = co_await reopen(ask, chain[0], std::move(under), false);
  std::vector<DiskNode> closing;  // from the highest on: one that another stands on cannot go
  if (done) {
    closing.assign(chain.begin() + 1, chain.begin() + static_cast<std::ptrdiff_t>(base));
  } else {
    closing.assign(made.rbegin(), made.rend());
  }
  for (const DiskNode& image : closing) co_await close_image(ask, image);
  co_return done;
}

Task<> qemu_merge(QemuAsk ask) {
  const std::string job = "merge", top = kMergeTop, highest = kMergeHighest, lowest = kMergeLowest, file = kMergeLowestFile;
  // The name that is written into the scratch image is never used.
  json::object arguments{{"job-id", job},       {"device", top},           {"top-node", highest},
                         {"base-node", lowest}, {"backing-file", "below"}, {"auto-dismiss", false}};
  CO_TRY_VOID(co_await ask("block-commit", std::move(arguments), nullptr));
  CO_TRY_VOID(co_await finish_job(ask, job));
  // Made read-only, its tables are written, or the error is told; when QEMU ends it would only be printed.
  const DiskNode image{lowest, file};
  json::value nothing;
  co_return co_await reopen(ask, image, std::move(nothing), true);
}

}  // namespace space::vmm

#include "wire/warden_protocol.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <type_traits>

#include "base/random.h"

namespace space::wire {
namespace {

static_assert(std::is_trivially_copyable_v<WardenRequest> && std::is_trivially_copyable_v<WardenReply>);

tl::unexpected<Error> bad(std::string_view what) {
  return fail(ErrorKind::invalid_argument, "bad_warden_packet", fmt::format("a warden packet {}", what),
              "node and warden must come from the same release");
}

// Nothing may hide behind the text: after the first NUL only NULs.
bool padded(std::span<const char> field) {
  const auto end = std::find(field.begin(), field.end(), '\0');
  return std::all_of(end, field.end(), [](char c) { return c == '\0'; });
}

bool printable(std::span<const char> field) {
  return padded(field) && std::all_of(field.begin(), field.end(), [](char c) { return c == '\0' || (c >= ' ' && c <= '~'); });
}

bool is_build(std::string_view text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool good_argv(const WardenRequest& r) {
  if (r.argv_bytes > kWardenArgvBytes || r.argv_count > kWardenMaxArguments) return false;
  const std::span<const char> block(r.argv);
  if (std::any_of(block.begin() + r.argv_bytes, block.end(), [](char c) { return c != '\0'; })) return false;
  if (r.argv_bytes > 0 && block[r.argv_bytes - 1] != '\0') return false;
  return static_cast<std::uint32_t>(std::count(block.begin(), block.begin() + r.argv_bytes, '\0')) == r.argv_count;
}

Result<> check_vm(const WardenRequest& r) {
  if (!padded(r.vm)) return bad("with bytes behind the VM's id");
  const std::string vm = text_of(r.vm);
  switch (r.call) {
    case WardenCall::hello:
    case WardenCall::freeze_file:
      return vm.empty() ? Result<>{} : bad("that names a VM where none belongs");
    case WardenCall::list:
      if (vm.empty()) return {};
      [[fallthrough]];
    default:
      return is_id(vm) ? Result<>{} : bad("whose VM id is not one");
  }
}

}  // namespace

void put_text(std::span<char> field, std::string_view text) {
  std::fill(field.begin(), field.end(), '\0');
  std::copy_n(text.begin(), std::min(text.size(), field.size()), field.begin());
}

std::string text_of(std::span<const char> field) { return {field.begin(), std::find(field.begin(), field.end(), '\0')}; }

Result<WardenRequest> parse_warden_request(std::string_view bytes) {
  if (bytes.size() != sizeof(WardenRequest)) return bad("of another size");
  WardenRequest r;
  std::memcpy(&r, bytes.data(), sizeof r);
  if (r.version != kWardenVersion) return bad("of another version");
  if (r.call < WardenCall::hello || r.call > WardenCall::refusals) return bad("with an unknown request");
  TRY_VOID(check_vm(r));
  if (!padded(r.build)) return bad("with bytes behind the build");
  const std::string build = text_of(r.build);
  if (!build.empty() && (r.call != WardenCall::start_vmm || !is_build(build))) return bad("whose build is not a digest");
  if (!good_argv(r) || (r.argv_count > 0 && r.call != WardenCall::start_vmm)) return bad("with a malformed argument block");
  return r;
}

Result<WardenReply> parse_warden_reply(std::string_view bytes) {
  if (bytes.size() != sizeof(WardenReply)) return bad("of another size");
  WardenReply r;
  std::memcpy(&r, bytes.data(), sizeof r);
  if (r.version != kWardenVersion) return bad("of another version");
  if (r.failed > 1 + static_cast<std::uint32_t>(ErrorKind::corrupt)) return bad("with an unknown kind of error");
  if (!padded(r.code) || !padded(r.message) || !padded(r.next) || !printable(r.vmm_build) || !printable(r.vmm_version) ||
      !printable(r.limits))
    return bad("with bytes behind a text");
  if (r.count > kWardenListEntries || r.more > 1 || r.kvm > 1) return bad("with a number out of range");
  for (std::uint32_t i = 0; i < r.count; ++i)
    if (!padded(r.entries[i].vm) || !is_id(text_of(r.entries[i].vm))) return bad("that lists something else than VMs");
  return r;
}

Result<> put_argv(WardenRequest& request, const std::vector<std::string>& argv) {
  std::string block;
  for (const std::string& argument : argv) {
    if (argument.find('\0') != std::string::npos) return fail(ErrorKind::invalid_argument, "bad_argument", "an argument holds a NUL byte");
    block.append(argument).push_back('\0');
  }
  if (block.size() > kWardenArgvBytes || argv.size() > kWardenMaxArguments)
    return fail(
        ErrorKind::too_large, "argument_list_too_long",
        fmt::format("{} arguments of {} bytes; at most {} of {}", argv.size(), block.size(), kWardenMaxArguments, kWardenArgvBytes));
  put_text(request.argv, block);
  request.argv_count = static_cast<std::uint32_t>(argv.size());
  request.argv_bytes = static_cast<std::uint32_t>(block.size());
  return {};
}

std::vector<std::string> split_argv(const WardenRequest& request) {
  std::vector<std::string> argv;
  const char* at = request.argv;
  for (const char* end = at + request.argv_bytes; at < end; at += argv.back().size() + 1) argv.emplace_back(at);
  return argv;
}

void put_error(WardenReply& reply, const Error& error) {
  reply.failed = 1 + static_cast<std::uint32_t>(error.kind);
  put_text(reply.code, error.code);
  put_text(reply.message, error.message);
  put_text(reply.next, error.next);
}

Error error_of(const WardenReply& reply) {
  return {static_cast<ErrorKind>(reply.failed - 1), text_of(reply.code), text_of(reply.message), text_of(reply.next)};
}

}  // namespace space::wire

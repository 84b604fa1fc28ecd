#include "node/guest_error.h"

#include <fmt/format.h>

#include "base/encoding.h"

namespace space::node {
namespace {

bool is_plain_code(std::string_view code) {
  if (code.empty() || code.size() > 64 || code[0] < 'a' || code[0] > 'z') return false;
  for (char c : code)
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')) return false;
  // Codes by which callers recognise the state of the sandbox itself or of their own access are not the guest's to use.
  for (std::string_view reserved : {"sandbox_", "token_", "key_", "agent_", "node_", "template_"})
    if (code.starts_with(reserved)) return false;
  return true;
}

bool is_refusal(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
    case ErrorKind::permission_denied:
    case ErrorKind::not_found:
    case ErrorKind::conflict:
    case ErrorKind::gone:
    case ErrorKind::too_large:
    case ErrorKind::unsupported:
    case ErrorKind::resource_exhausted:
    case ErrorKind::insufficient_storage:
      return true;
    case ErrorKind::unauthenticated:
    case ErrorKind::internal:
    case ErrorKind::unavailable:
    case ErrorKind::deadline_exceeded:
    case ErrorKind::cancelled:
    case ErrorKind::corrupt:
      return false;
  }
  return false;
}

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (std::size_t i = 0; i < text.size() && out.size() < limit;) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    const std::string_view character = text.substr(i, length);
    i += length;
    if (lead < 0x20 || lead == 0x7f) {
      out += ' ';
    } else if (out.size() + length > limit) {
      break;
    } else if (is_utf8(character)) {
      out += character;
    } else {
      out += '?';
      i -= length - 1;  // the bytes behind a bad lead are looked at for themselves
    }
  }
  return out;
}

Error agent_not_answering(std::string_view doing, std::string_view why) {
  return {ErrorKind::deadline_exceeded, "agent_not_answering",
          fmt::format("the agent inside the sandbox did not answer as it should ({}): {}", doing, printable(why, 300)),
          "try again; when it stays so, the sandbox's own processes have hurt its agent: delete it and create another one"};
}

Error vm_gone() {
  return {ErrorKind::conflict, "sandbox_ended", "the sandbox's virtual machine has ended", "delete it and create another one"};
}

Error guest_not_frozen(std::string_view next) {
  return {ErrorKind::conflict, "guest_not_frozen",
          "the sandbox's processes did not stand still: two that go on from there would draw the same random numbers", std::string(next)};
}

Error reader_gone() { return {ErrorKind::cancelled, "client_gone", "the client has closed the connection", {}}; }

Error guest_error(const Error& error, std::string_view doing) {
  if (is_refusal(error.kind) && is_plain_code(error.code))
    return {error.kind, error.code, printable(error.message, 512), printable(error.next, 256)};
  return agent_not_answering(doing, error.message);
}

}  // namespace space::node

#include "agent/signals.h"

#include <charconv>
#include <csignal>

namespace space::agent {
namespace {

struct Row {
  std::string_view name;
  int number;
};
constexpr Row kSignals[] = {
    {"TERM", SIGTERM},   {"KILL", SIGKILL}, {"INT", SIGINT},   {"HUP", SIGHUP},       {"QUIT", SIGQUIT}, {"USR1", SIGUSR1},
    {"USR2", SIGUSR2},   {"STOP", SIGSTOP}, {"CONT", SIGCONT}, {"TSTP", SIGTSTP},     {"TTIN", SIGTTIN}, {"TTOU", SIGTTOU},
    {"WINCH", SIGWINCH}, {"PIPE", SIGPIPE}, {"ALRM", SIGALRM}, {"ABRT", SIGABRT},     {"CHLD", SIGCHLD}, {"URG", SIGURG},
    {"IO", SIGIO},       {"PWR", SIGPWR},   {"SYS", SIGSYS},   {"VTALRM", SIGVTALRM}, {"PROF", SIGPROF}, {"XCPU", SIGXCPU},
    {"XFSZ", SIGXFSZ},   {"SEGV", SIGSEGV}, {"BUS", SIGBUS},   {"FPE", SIGFPE},       {"ILL", SIGILL},   {"TRAP", SIGTRAP},
};

}  // namespace

std::optional<int> signal_number(std::string_view name) {
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && end == name.data() + name.size()) return number >= 1 && number <= 64 ? std::optional(number) : std::nullopt;
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (const Row& row : kSignals)
    if (row.name == name) return row.number;
  return std::nullopt;
}

}  // namespace space::agent

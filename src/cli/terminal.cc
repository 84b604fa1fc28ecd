#include "cli/terminal.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace space::cli {
namespace {

termios saved;  // what a handler restores; async-signal-safe to read once `raw` is set
volatile sig_atomic_t raw = 0;
constexpr int kDeadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGQUIT};

void restore_and_die(int signal) {
  if (raw) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

TerminalSize terminal_size() {
  for (const int fd : {STDOUT_FILENO, STDIN_FILENO}) {
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) return {size.ws_row, size.ws_col};
  }
  return {};
}

RawTerminal::RawTerminal() {
  if (::tcgetattr(STDIN_FILENO, &saved) != 0) return;
  raw = 1;
  for (const int signal : kDeadly) ::signal(signal, restore_and_die);
  termios bare = saved;
  ::cfmakeraw(&bare);
  active_ = ::tcsetattr(STDIN_FILENO, TCSADRAIN, &bare) == 0;
}

RawTerminal::~RawTerminal() {
  if (!raw) return;
  if (active_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
  raw = 0;
  for (const int signal : kDeadly) ::signal(signal, SIG_DFL);
}

}  // namespace space::cli

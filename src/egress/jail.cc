#include "egress/jail.h"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "confine/calls.h"
#include "confine/filter.h"
#include "confine/landlock.h"

namespace space::egress {
namespace {

constexpr const char* kDialling[] = {"connect"};
constexpr unsigned long kAtMark = 0x8905;  // SIOCATMARK (asm-generic/sockios.h)

}  // namespace

Result<> enter_worker_jail() {
  TRY_VOID(confine::enter_landlock({}, confine::Tcp::connect));
  confine::Filter filter;
  filter.allow(confine::kOfEveryProgram);
  filter.allow(confine::kDescriptors);
  filter.allow(confine::kEventLoop);
  filter.allow(confine::kConnections);
  filter.allow(kDialling);
  filter.allow_sockets({AF_INET, AF_INET6});
  filter.allow_ioctls({FIONBIO, FIONREAD, TCGETS, kAtMark});
  filter.allow_madvise();
  filter.allow_signals_to(::getpid());
  filter.allow_reading_limits();
  filter.refuse(confine::kOpening, EPERM);
  filter.refuse(confine::kNames, EPERM);
  filter.refuse(confine::kPrograms, EPERM);
  filter.end_process(confine::kAttacks);
  return filter.load();
}

}  // namespace space::egress

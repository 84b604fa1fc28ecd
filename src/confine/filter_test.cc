// Filters against the kernel, each in a process of its own, since none is ever taken off again.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <thread>

#include "confine/calls.h"
#include "confine/filter.h"

namespace space::confine {
namespace {

constexpr int kNotLoaded = 99;
constexpr long kUpper = 1L << 32;  // of an argument that the kernel reads as an int

// What `work` gives in a process whose filter is `made` by the second, or minus the signal that ended it.
int behind(const std::function<void(Filter&)>& made, const std::function<int()>& work) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    Filter filter;
    made(filter);
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !filter.load()) ::_exit(kNotLoaded);
    ::_exit(work());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int error_of(long result) { return result >= 0 ? 0 : errno; }

void ordinary(Filter& filter) {
  filter.allow(kOfEveryProgram);
  filter.allow(kDescriptors);
  filter.allow_madvise();
}

TEST(Filter, WhatIsNotListedIsNotThere) {
  const auto make_socket = [] { return error_of(::socket(AF_UNIX, SOCK_STREAM, 0)); };
  const auto read_pid = [] { return error_of(::syscall(SYS_getpid)); };
  EXPECT_EQ(behind(ordinary, make_socket), ENOSYS);
  EXPECT_EQ(behind(ordinary, read_pid), 0);
  EXPECT_EQ(behind(
                [](Filter& f) {
                  ordinary(f);
                  f.allow_sockets({AF_UNIX});
                },
                make_socket),
            0)
      << "the control";
}

TEST(Filter, TheFirstWordOnACallCounts) {
  constexpr const char* kOne[] = {"getppid"};
  const auto ask = [] { return error_of(::syscall(SYS_getppid)); };
  EXPECT_EQ(behind(
                [&](Filter& f) {
                  f.end_process(kOne);
                  ordinary(f);
                },
                ask),
            -SIGSYS);
  EXPECT_EQ(behind(
                [&](Filter& f) {
                  f.refuse(kOne, EPERM);
                  ordinary(f);
                },
                ask),
            EPERM);
  EXPECT_EQ(behind(
                [&](Filter& f) {
                  ordinary(f);
                  f.end_process(kOne);
                },
                ask),
            0);
}

TEST(Filter, ACallThatNobodyKnowsIsLeftOut) {
  constexpr const char* kNone[] = {"no_such_call"};
  EXPECT_EQ(behind(
                [&](Filter& f) {
                  f.allow(kNone);
                  ordinary(f);
                },
                [] { return 0; }),
            0);
}

TEST(Filter, TheUpperHalfOfAnIntHidesNothing) {
  const auto filter = [](Filter& f) {
    ordinary(f);
    f.allow_prctl();
    f.allow_sockets({AF_UNIX});
  };
  EXPECT_EQ(behind(filter, [] { return error_of(::syscall(SYS_prctl, kUpper | PR_SET_DUMPABLE, 1, 0, 0, 0)); }), ENOSYS);
  EXPECT_EQ(behind(filter, [] { return error_of(::syscall(SYS_prctl, PR_SET_DUMPABLE, kUpper, 0, 0, 0)); }), ENOSYS);
  EXPECT_EQ(behind(filter, [] { return error_of(::syscall(SYS_socket, kUpper | AF_INET, SOCK_STREAM, 0)); }), ENOSYS);
  EXPECT_EQ(behind(filter, [] { return error_of(::syscall(SYS_madvise, nullptr, 0, kUpper | MADV_MERGEABLE)); }), ENOSYS);
  EXPECT_EQ(behind(filter, [] { return error_of(::syscall(SYS_socket, kUpper | AF_UNIX, SOCK_STREAM, 0)); }), 0) << "and forbids nothing";
  EXPECT_EQ(behind(filter, [] { return error_of(::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)); }), 0);
}

TEST(Filter, ThreadsAreNotProcesses) {
  const auto fork = [] {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(0);
    return error_of(pid);
  };
  const auto in_namespace = [] { return error_of(::syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr, nullptr, nullptr, nullptr)); };
  const auto start_thread = [] {
    int seen = 1;
    std::thread([&] { seen = 0; }).join();
    return seen;
  };
  const auto threads = [](Filter& f) {
    ordinary(f);
    f.allow_prctl();
    f.allow_threads();
  };
  const auto processes = [](Filter& f) {
    ordinary(f);
    f.allow_prctl();
    f.allow_processes();
  };
  EXPECT_EQ(behind(threads, start_thread), 0);
  EXPECT_EQ(behind(threads, fork), ENOSYS);
  EXPECT_EQ(behind(processes, start_thread), 0);
  EXPECT_EQ(behind(processes, fork), 0);
  EXPECT_EQ(behind(processes, in_namespace), ENOSYS);
}

TEST(Filter, LimitsAreReadAndNotSet) {
  const auto filter = [](Filter& f) {
    ordinary(f);
    f.allow_reading_limits();
  };
  EXPECT_EQ(behind(filter,
                   [] {
                     rlimit now{};
                     return error_of(::getrlimit(RLIMIT_NOFILE, &now));
                   }),
            0);
  EXPECT_EQ(behind(filter,
                   [] {
                     const rlimit fewer{8, 8};
                     return error_of(::setrlimit(RLIMIT_NOFILE, &fewer));
                   }),
            ENOSYS);
}

TEST(Filter, FiltersComeOnTopAndListenToNothing) {
  const auto on_top = [](unsigned flags) {
    return [flags] {
      sock_filter pass{BPF_RET | BPF_K, 0, 0, 0x7fff0000 /* SECCOMP_RET_ALLOW */};
      const sock_fprog program{1, &pass};
      return error_of(::syscall(SYS_seccomp, 1 /* SECCOMP_SET_MODE_FILTER */, flags, &program));
    };
  };
  const auto filter = [](Filter& f) {
    ordinary(f);
    f.allow_filters();
  };
  EXPECT_EQ(behind(filter, on_top(0)), 0);
  EXPECT_EQ(behind(filter, on_top(8 /* SECCOMP_FILTER_FLAG_NEW_LISTENER */)), ENOSYS);
}

}  // namespace
}  // namespace space::confine

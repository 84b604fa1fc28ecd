"""Control groups of the bare VMs, alike those of SPACE's own: `space-bench` beside `space`, with a group for each VM below it.

In the root group every process counts as much as the whole group `space`, so bare VMs that stood there would together get eight times
the processors of eight sandboxes as soon as anybody else computes as well."""
import os, pathlib, time


class Groups:
    def __init__(self, pid):
        """`pid`: a VMM of SPACE; the peer gets groups of the same controllers."""
        self.parents = []
        mounts = {}
        for line in open('/proc/self/mountinfo'):
            fields, _, after = line.partition(' - ')
            kind, _, options = after.split(maxsplit=2)
            if kind in ('cgroup', 'cgroup2'):
                for name in (options.split()[0].split(',') if kind == 'cgroup' else ['']):
                    mounts.setdefault(name, fields.split()[4])
        for line in open(f'/proc/{pid}/cgroup'):
            _, controllers, path = line.strip().split(':', 2)
            parts = path.strip('/').split('/')
            mount = mounts.get(controllers.split(',')[0])
            if parts[0] != 'space' or len(parts) != 2 or not mount:
                continue
            parent = pathlib.Path(mount, 'space-bench')
            parent.mkdir(exist_ok=True)
            if not controllers:  # version 2 hands its controllers down
                parent.joinpath('cgroup.subtree_control').write_text('+memory +cpu +pids')
            self.parents.append(parent)

    def make(self, name):
        """The files into which a process writes 0 to stand in the groups of this name."""
        for parent in self.parents:
            parent.joinpath(name).mkdir()
        return [parent / name / 'cgroup.procs' for parent in self.parents]

    def remove(self, name):
        """Its process has ended; it may still be counted for a moment."""
        for parent in self.parents:
            for _ in range(100):
                try:
                    parent.joinpath(name).rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(.002)

    def close(self):
        for parent in self.parents:
            try:
                os.rmdir(parent)
            except OSError:
                pass  # another benchmark's VMs stand there

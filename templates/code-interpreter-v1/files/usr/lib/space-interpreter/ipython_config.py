# Of every Python kernel. Its own modules are appended to the path, so that none of the user's is hidden.
import sys

sys.path.append("/usr/lib/space-interpreter")
c = get_config()  # noqa: F821
c.InteractiveShell.colors = "NoColor"
c.HistoryManager.enabled = False  # no database in the home
c.PlainTextFormatter.max_seq_length = 0
c.InteractiveShellApp.extensions = ["space_rich"]

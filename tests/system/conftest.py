"""What all tests of this folder share: their servers are forked, not started anew."""

from forked_process import ForkedProcess

from ottla.testing.processes import ServerProcess

ServerProcess.popen = ForkedProcess

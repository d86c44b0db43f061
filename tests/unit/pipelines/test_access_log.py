"""Log files as records."""

from ottla.pipelines.access_log import LogLine, read_lines


def test_bytes_of_a_line_are_kept(tmp_path):
    """Whatever a line holds is its value, without its end; the key is the client's address."""
    path = tmp_path / "access.log"
    path.write_bytes(b"192.0.2.1 - \xff\x00\n\n192.0.2.2 no end\r\nlast")

    assert list(read_lines(path)) == [
        LogLine(b"192.0.2.1", b"192.0.2.1 - \xff\x00"),
        LogLine(b"", b""),
        LogLine(b"192.0.2.2", b"192.0.2.2 no end"),
        LogLine(b"last", b"last"),
    ]

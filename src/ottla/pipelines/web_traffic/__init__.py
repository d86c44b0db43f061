"""Web-site traffic: access-log lines in, traffic, pages, errors and crawlers out."""

"""The console: topics, records, groups and brokers of a cluster as pages for a browser.

It is a process of its own and speaks Kafka's protocol, so that it shows any cluster of Kafka.
`page` has the interface of a page, `pages` the table of all of them.
"""

"""Files that leave and enter the project: realised filters for other tools, and what hardware asks of them.

Used by the service and by the command line. `synthesis` itself reads and writes nothing.
"""

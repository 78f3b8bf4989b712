from aiostream_data._native.ledger_py import Alone as Alone
from aiostream_data._native.ledger_py import Charge as Charge
from aiostream_data._native.ledger_py import Ledger as Ledger
from aiostream_data._native.ledger_py import finish as finish

"ó
ð
stock.protoshop"
Product
id (Rid">
Item
id (Rid
name (	Rname
left (Rleft2x
Stock 
Get.shop.Product
.shop.Item$
Watch.shop.Product
.shop.Item0'
Follow.shop.Product
.shop.Item(0bproto3
"Ê
Ç
stock.protoshop"
Product
id (Rid">
Item
id (Rid
name (	Rname
left (Rleft2O
Stock 
Get.shop.Product
.shop.Item$
Watch.shop.Product
.shop.Item0bproto3